"""What a process does that is to run a user's code: goes behind the walls, is told little, answers by a pipe (I/O)."""

import os
import sys
import tempfile

from gpu_plan.planner.walls.behind import Asked, Standing, go_behind, stay_outside
from gpu_plan.planner.walls.namespaces import Room
from gpu_plan.planner.walls.privileges import Bounds


class NoWallsError(Exception):
    """The user's code is not run; says why, in words that follow its name."""


def enter(
    scratch: str, descriptors: tuple[int, ...], *, processes: int, written_bytes: int, unwalled: bool
) -> Standing:
    """Returns behind the best walls, or `unwalled` outside where there are none; NoWallsError where that is not said.

    `scratch`: an empty folder; `descriptors` stay open, `processes` may run at once and `written_bytes` be written.
    """
    asked = Asked(
        scratch=scratch,
        descriptors=descriptors,
        bounds=Bounds(processes=processes, file_bytes=written_bytes),
        room=Room(written_bytes=written_bytes, shared_bytes=written_bytes),
    )
    walls = go_behind(asked)
    if walls.kind == "none":
        if not unwalled:
            raise NoWallsError(
                f"is not executed: this machine offers no walls to run it behind ({'; '.join(walls.refused)}):"
                " --unwalled runs it with your own rights"
            )
        return stay_outside(asked)
    return walls


def quiet(walls: Standing, scratch: str) -> None:
    """No hub, no warnings of libraries, no input; what is temporary goes to `scratch` where files do not go nowhere."""
    if walls.kind != "namespaces":
        for name in ("TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "MPLCONFIGDIR"):
            os.environ[name] = scratch
        tempfile.tempdir = None
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115


def write_whole(descriptor: int, content: bytes) -> None:
    """All of `content`, however little a pipe takes at once. OSError where nobody reads any more."""
    waiting = memoryview(content)
    while waiting:
        waiting = waiting[os.write(descriptor, waiting) :]
