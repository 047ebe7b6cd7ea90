"""Renders documents: as text, pages, tables and plots. Makes none of them.

    plan/, sweep/, run/     plans, sweeps and runs in the terminal, as Markdown, as JSON
    check/, doctor          reports of `plan check` and `plan doctor`
    diff, snapshot/         two plans, two memory histories, side by side; the snapshot as a file
    html/, markup           pages, and HTML in which every string is escaped
    plots/, tables/         matplotlib's pictures; rows, CSV, pandas frames
    clean, durations        text made safe to show; durations in words
    requires                which optional package a report needs, said before any work

The commands, the Python API and the explorer import from these. Reads documents of the planner and records of the
executor, and by contract nothing that makes them; no torch. matplotlib and pandas only where they are used.
"""
