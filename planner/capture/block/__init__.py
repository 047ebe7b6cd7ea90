"""Capture of a block: what runs inside a `with` in this very process, recorded on meta and replayed.

Where capture/window.py runs a script in a process of its own up to its first step, a block is part of a program
that goes on afterwards, such as a test: whatever is put in place is taken back, and all that happens is recorded, from
the first parameter to the last optimizer step.

    capture, world             `BlockCapture`: records a block; all that stands around it meanwhile
    recorder, hooks, modules   what the block does, pass by pass; its models, which may come and go
    placement, outsiders, gpu  where tensors lie; models made before the block; the GPU it is measured on
    stream, result             the block as one rank's stream, replayed; `BlockMemory`, in bytes

`executor.pytest_plugin` uses `capture`, `gpu` and `result`. Imports torch.
"""
