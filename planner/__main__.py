"""`python -m planner`: the command `plan` where its script is not on the path."""

from planner.cli import entry

entry()
