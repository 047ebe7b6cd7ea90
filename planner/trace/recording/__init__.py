"""The recorder: every storage that a step makes on meta, when, why, and when it dies.

    recorder, modules, origins       storages; the module that runs, forward and backward; the user's line that runs
    functions, operators/            what the planned device would compute; what one operator makes, and its work
    host_reads, host_read_policies   what a step asks of values: answered by name, or an error
    fit, between, recorded           recorded steps to a `StepTrace` whose bytes are linear in the micro batch; kept
    collection                       no garbage collection meanwhile

`trace`, `generation`, `compile` and `capture` record with it. Imports torch.
"""
