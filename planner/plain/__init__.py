"""What any room may use, of values alone: nothing here imports another part of this package.

values   `dataclass`, as the standard library has it, in less time
among    which numbers of a column are among a few
"""
