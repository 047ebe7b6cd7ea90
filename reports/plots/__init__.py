"""Plots by matplotlib, imported only where one is drawn.

    targets                    `--plot [KIND:]FILE`, refused before any work; needs no matplotlib
    memory, sweep, run         plots of a plan document, of a sweep, of a finished run
    streams                    a step stream by stream
    timeline, timeline_file    the timeline of a step, as a picture or as CSV (I/O)
    style                      colours, and a figure as a file or as part of a page

Used by the commands, the Python API and `reports.html`. The data is what documents hold, in bytes and seconds.
"""
