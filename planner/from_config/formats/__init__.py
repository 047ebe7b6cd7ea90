"""One module for each format that is read: `SIGNS`, the top-level keys by which it is known, and `read`.

    accelerate, axolotl, deepspeed, llamafactory, trainer   the formats; a new one is a module and a line in `kinds`
    fsdp, shared                                            what several formats have in common

`kinds` alone uses them. They note in a `Reading` what a `Table` says; no files are opened. No torch, none of the tools.
"""
