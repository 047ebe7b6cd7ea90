"""One module for each format that is read: `SIGNS`, by which it is known, and `read`.

    accelerate, deepspeed    how a model is spread, whatever runs the loop
    trainers/                tools that run transformers' Trainer
    loops/                   tools with a loop of their own
    fsdp, shared, hub_names  what several formats have in common

`kinds` alone uses them; a new one is a module and a line there. They note in a `Reading` what a `Table` says; no files
are opened. No torch, none of the tools.
"""
