"""Capture: a training script runs to its first optimizer step on the meta device, and what it did is the trace.

    job, provider, workload, compare   in the planning process: the script as a job's subject, its traces, its workload,
                                       and where it disagrees with a model planned by name
    parent, request                    starts the child, holds it to its limits; what the two say to each other
    progress                           how long the child is waited for
    child, window                      the process in which the user's own code runs, behind `planner.walls`
    lean                               whether a script trains without transformers
    unwritten/                         in the child: what it writes where no overlay takes it
    answers/, watch/                   in the child: answers in place of a GPU's; what the loop does
    deepspeed/                         in the child: DeepSpeed's engine, which shards nothing there
    imports, files                     callbacks after an import; the text files of a project
    block/                             the same for a `with` block of a program that goes on afterwards

Others use `job`, `provider`, `compare`, `request`, `files` and `block`. The planning side imports no torch; `child`,
`window`, `answers`, `watch` and `block` do.
"""
