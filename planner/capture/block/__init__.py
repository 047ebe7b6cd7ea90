"""Capture of a block: what runs inside a `with` in this very process, recorded on meta and replayed.

Where capture/window.py runs a script in a process of its own up to its first step, a block is part of a program
that goes on afterwards, such as a test: whatever is put in place is taken back, and all that happens is recorded, from
the first parameter to the last optimizer step.
"""
