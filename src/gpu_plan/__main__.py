"""`python -m gpu_plan`: the command `plan` where its script is not on the path."""

import sys

if not sys.flags.safe_path:
    # Python put the working directory first: a torch.py that lies there is not ours to run.
    del sys.path[0]

from gpu_plan.cli import entry

entry()
