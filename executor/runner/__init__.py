"""Runs a training script in one rank and records what happens there, without a line in the script.

`python -m gpu_plan.executor.runner SCRIPT ARGS...` is what the launcher starts on every rank. It imports the standard
library only; what it hooks (torch, accelerate, deepspeed, transformers, lightning) it meets when the script imports it.

    script, function, options   what is run as a rank, and what the launching process asks of it
    imports, hooks/, cpu/       calls back when a library is imported, and puts the hooks there
    parallel/                   spreads the script's models over the ranks, where the plan has it
    observe/                    looks at the models, and stops a script whose model is not the planned one
    recorder, figures/, memory/ what the hooks tell, as steps, phases, batches, losses and bytes
    saving/                     the checkpoint protocol, for untouched scripts
    record, document, snapshot  `rank-N.json` whole and at once; torch's memory history on demand
    ending, failure, stop       how a rank begins and ends as a process, and why it ended

Started as a module; `current`, `figures` and `memory` serve prompt runs, `function` notebooks. By contract it imports
neither `gpu_plan.planner` nor psutil, rich or yaml.
"""
