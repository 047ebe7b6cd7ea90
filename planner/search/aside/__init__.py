"""Parts of a search worked out beside it, on the cores there are: what comes of them is the same, only sooner.

`forked.beside` starts processes and asks them, `telling` has them say what a document says of candidates while the
search goes on, `at_once` calls what lets go of the interpreter's lock in threads. `allowed` says how many; nothing else
here is imported by others.
"""
