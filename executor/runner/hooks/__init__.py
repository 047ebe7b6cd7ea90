"""Hooks on the libraries that a script imports, one module each.

    registry                          which imported module gets which hooks; `install_hooks` is all that others use
    pytorch, accelerate, deepspeed    steps, backward passes, prepared models and data, DeepSpeed's engine
    trainer                           transformers' Trainer, TRL's and Lightning's
    clipping                          the norms to which gradients are clipped
    rebatch                           the planned micro batch for a script that has no option for it (opt-in)
    trackers                          figures in the trackers that the script has set up

Hooks tell the `Recorder` and `observe`; they import no library that the script does not.
"""
