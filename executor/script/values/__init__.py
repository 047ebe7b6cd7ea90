"""What a script runs with where nobody tells it otherwise, as far as its text says.

    literals   numbers that stand there: written, named once, or an option by the words after `--` or its default
    clipping   where it clips its gradients, and to what
    batch      its micro batch and accumulation

`launch` uses them. Standard library and the rest of `executor.script` only.
"""
