"""What any room may use, of values alone: nothing here imports another part of this package.

values   `dataclass`, as the standard library has it, in less time
facts    tables that come with this program, as TOML or as its twin in JSON
among    which numbers of a column are among a few
"""
