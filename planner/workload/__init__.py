"""What is to be run, as frozen values, each with the basis of its value (given, default, searched, captured).

    training     `Workload`, and the words for optimizers, precisions, stacks, ...
    generation   `InferWorkload`

Imported by nearly every room; imports none.
"""
