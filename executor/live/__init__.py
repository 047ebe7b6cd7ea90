"""Shows a run while it runs.

    show            `live`: the view that fits this output
    screen, plain   on a terminal, with figures that stand still; in logs and pipes, line by line
    figures         words and numbers from the ranks' pulses. Pure

`--execute` uses `show.live`, the explorer `figures`. Reads `supervise`'s events and pulses, changes nothing; rich only
in `screen`.
"""
