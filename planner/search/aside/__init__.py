"""Parts of a search worked out beside it, on the cores there are: what comes of them is the same, only sooner.

`forked.beside` starts processes and asks them; nothing else here is imported by others. `allowed` says how many.
"""
