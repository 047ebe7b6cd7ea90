"""Screens over the explorer's picture, one per file; `panel` is what all share.

    form, help                    every option at once; every key
    streams                       one step, stream by stream
    drill, compare                category to module to tensor; against the pinned configuration
    leave, launch                 leaving with a command, a plan or a report; launching after all was shown
    runs, watch                   this folder's runs; one that runs now

`app` opens them. A screen gets values and says what was chosen; none plans anything.
"""
