"""In the child, where nothing can be laid over the file systems: what it writes, and what it is told instead.

    redirect    Python's own calls work on copies in a scratch folder
    refusals    what the kernel refuses all the same says who refuses it, and why

Conveniences: neither is a wall.
"""
