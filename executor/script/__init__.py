"""What a training script takes and asks for, by its syntax tree: a script is never run here.

    read                 `read_script`: a script or notebook as `Script` (I/O)
    option, options      one option; all that it understands, whatever declares them:
                         options_argparse, options_click, options_dataclass
    check_arguments      whether its argparse would refuse the words after `--`
    values/              what its text says that it runs with: its batch, its clipping
    accelerator, loop    what it gives its Accelerator, who runs its training loop
    resume_words         which of a script's own words name a checkpoint to go on from
    plan_use             what of the plan it asks for itself

`launch` uses all of it, `doctor`, `supervise` and the commands `read`, `checkpoints` `resume_words`. Standard library
and planner errors only.
"""
