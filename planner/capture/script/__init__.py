"""The user's script as a program: run as Python would run it, or as a module of its package; what it keeps to
itself, what its project's modules say, and the processes that it starts for its ranks.

Others import `advice`, `program`, `ranks` and `texts`. Standard library only: it stands between the child and the
user's code.
"""
