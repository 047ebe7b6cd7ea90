"""The user's script as a program: run as Python would run it, or as a module of its package; what it keeps to
itself, and what its project's modules say.

Others import `program` and `texts`. Standard library only: it stands between the child and the user's code.
"""
