"""What is to be run, as frozen values, each with the basis of its value (given, default, searched, captured).

    training     `Workload`, and the words for checkpointing, attention, stacks
    optimizers   one file for each, found by the folder `kinds`; precisions, adapters: one entry for each
    generation   `InferWorkload`

Imported by nearly every room; imports none.
"""
