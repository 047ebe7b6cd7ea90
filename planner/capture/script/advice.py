"""What a user does about an exception that is no fault of the code: a setting that is missing, a notebook's line."""

import re
from collections.abc import Mapping

_REQUIRED = re.compile(r"the following arguments are required: (?P<names>[^\n]+)")
_OF_ENVIRONMENT = re.compile(r"\benviron\b")
_OF_A_NOTEBOOK = ("!", "%")
_OF_TRANSFORMS = ("TensorWrapper", "BatchedTensor")
"""What torch's own errors call the tensors within a transform of torch.func."""
_SPARSE = ("SparseTensorImpl", "SparseCsrTensorImpl", "Sparse CPU", "SparseMeta")
"""What they call a sparse one."""


def about_arguments(script: str, said: str) -> str:
    """What to write where argparse missed arguments; empty where it did not."""
    found = _REQUIRED.search(said)
    if found is None:
        return ""
    names = [name.strip() for name in found["names"].split(",")]
    words = " ".join(f"{name} ..." if name.startswith("-") else f"{name.upper()}" for name in names)
    return f"give the script's arguments behind --: plan {script} --gpus ... -- {words}"


def about(problem: BaseException, line: str) -> str:
    """What to do about an exception that stopped at this line of the user's; empty where nothing is known."""
    line = line.strip()
    if isinstance(problem, SyntaxError) and line.startswith(_OF_A_NOTEBOOK):
        return (
            f"{line[:60]!r} is a line of a notebook and no Python: take such lines out, or export the notebook with"
            " jupyter nbconvert --to script"
        )
    if isinstance(problem, KeyError) and problem.args and _OF_ENVIRONMENT.search(line):
        name = str(problem.args[0])[:60]
        return f"the environment variable {name} is not set: set it before the command ({name}=... plan ...)"
    if isinstance(problem, NotImplementedError | RuntimeError) and any(kind in str(problem) for kind in _OF_TRANSFORMS):
        return "it takes gradients by torch.func (grad, vmap), not by backward(), which a capture does not follow"
    if isinstance(problem, NotImplementedError | RuntimeError) and any(kind in str(problem) for kind in _SPARSE):
        return (
            "its tensors or gradients are sparse, which are not planned: nn.Embedding(..., sparse=False) has dense ones"
        )
    return ""


class Kernel:
    """What `get_ipython()` gives in a script exported from a notebook: its magics do nothing here."""

    def __getattr__(self, name: str) -> object:
        return _nothing

    @property
    def config(self) -> Mapping[str, object]:
        return {}


def _nothing(*_: object, **__: object) -> None:
    """A magic, or a command of the shell."""
