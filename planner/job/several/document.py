"""A job document as a file (I/O)."""

from pathlib import Path

from gpu_plan.planner.errors import InputError, UnreachableError
from gpu_plan.planner.foreign.as_toml import MAX_BYTES, toml_table
from gpu_plan.planner.foreign.files import read_bytes
from gpu_plan.planner.foreign.limits import MalformedError
from gpu_plan.planner.options.several.given import JobGiven
from gpu_plan.planner.options.several.read import read_job


def read_document(path: Path, where: str) -> JobGiven:
    """What the file says; InputError in one line for what makes no sense."""
    try:
        return read_job(toml_table(read_bytes(path, MAX_BYTES + 1)), where)
    except OSError as error:
        raise UnreachableError(f"{where} cannot be read: {error.strerror}; check its permissions") from None
    except MalformedError as error:
        raise InputError(f"{where} {error}: a job document is TOML, with [models.NAME] and [[phases]]") from None
