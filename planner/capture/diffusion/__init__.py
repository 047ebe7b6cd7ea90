"""Training loops of diffusers' models, run to their first step by a capture: `plan FOLDER`.

    train    a model's loop under Accelerate, as diffusers' own training scripts write it
    inputs   what each class is called with, and the classes that are known

Nobody imports them but the process that captures, which `planner/job/diffused.py` starts. They import diffusers.
"""
