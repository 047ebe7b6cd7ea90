"""The capturing child: `-m gpu_plan.planner.capture.child REQUEST RESULT`. Runs the user's own code, behind walls.

RESULT is a folder outside the walls: `outcome.json`, and `trace.npz` where the step was reached. It is opened before
the walls go up; the process ends with os._exit as soon as the outcome is written, so that nothing of the script's own
clean-up runs.
"""

import contextlib
import os
import resource
import runpy
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from gpu_plan.planner.capture import sandbox
from gpu_plan.planner.capture.request import CapturedFacts, CaptureRequest, Outcome
from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.neighbours import admit
from gpu_plan.planner.plan.codec import decode, dump, load_object


class Result:
    """Files of the outcome, reached through a descriptor that the walls do not cover."""

    def __init__(self, folder: str) -> None:
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)

    def _write(self, name: str, content: bytes) -> None:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=self._folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)

    def end(self, outcome: Outcome, trace: bytes | None = None) -> NoReturn:
        """Writes and leaves at once."""
        sandbox.lift_refusals()
        if trace is not None:
            self._write("trace.npz", trace)
        self._write("outcome.json", dump(outcome).encode())
        os._exit(0)


def main(words: list[str]) -> NoReturn:
    request = decode(CaptureRequest, load_object(Path(words[0]).read_bytes(), words[0]), words[0])
    result = Result(words[1])
    script = Path(request.script)
    os.chdir(request.working_directory)
    admit(os.path.dirname(os.path.realpath(script)))
    started = time.monotonic()
    folders = [Path.cwd(), script.parent, Path.home(), Path("/tmp"), Path("/var/tmp"), Path("/dev/shm")]
    walls = sandbox.enter(folders, processes=request.processes)
    _quiet_environment(request)
    # Imported behind the walls: a process that has threads gets no user namespace, and torch starts some.
    from gpu_plan.planner.capture.window import Window

    window = Window(request, lambda facts, trace: result.end(_captured(facts, started, walls), trace))
    with contextlib.ExitStack() as stack:
        window.open(stack)
        sys.argv = [request.script, *request.arguments]
        try:
            runpy.run_path(request.script, run_name="__main__")
        except BaseException as problem:
            window.end()
            result.end(_failed(problem, script, window))
        window.end()
        result.end(_no_step(script, window))


def _captured(facts: CapturedFacts, started: float, walls: str) -> Outcome:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    notes = facts.notes if walls == "namespaces" else (*facts.notes, "files and network were closed by refusal")
    return Outcome(
        stage="captured",
        facts=replace(facts, seconds=time.monotonic() - started, resident_bytes=peak, notes=notes),
    )


def _no_step(script: Path, window: Any) -> Outcome:
    if window.reached_backward:
        message = "ends after a backward pass without an optimizer step"
    else:
        message = "ends without training a model"
    return Outcome(stage="no_step", message=f"{message}: name the model with --model, or a factory", file=str(script))


def _failed(problem: BaseException, script: Path, window: Any) -> Outcome:
    from gpu_plan.planner.capture.answers.pretrained import NeedsConfigError

    needed = _cause(problem, NeedsConfigError)
    if needed is not None:
        return Outcome(stage="network", message=str(needed), needs=needed.name)
    file, line = _own_frame(problem, script)
    if isinstance(problem, SystemExit):
        code = problem.code
        text = "" if code in (None, 0) else f": {str(code).strip().splitlines()[0][:200]}" if str(code).strip() else ""
        return Outcome(stage="exited", message=f"exits before its first optimizer step{text}", file=file, line=line)
    if isinstance(problem, EOFError):
        return Outcome(stage="input", message="asks for input, and nobody answers", file=file, line=line)
    plain = isinstance(problem, PlanError)
    first = (str(problem).strip().splitlines() or [""])[0][:300]
    text = first if plain else f"{type(problem).__name__}: {first}" if first else type(problem).__name__
    return Outcome(stage="unsupported" if plain else "raised", message=text, file=file, line=line)


def _cause(problem: BaseException | None, kind: type[Any]) -> Any:
    while problem is not None:
        if isinstance(problem, kind):
            return problem
        problem = problem.__cause__ or problem.__context__
    return None


def _own_frame(problem: BaseException, script: Path) -> tuple[str | None, int | None]:
    """The innermost frame of the user's own files."""
    if isinstance(problem, SyntaxError) and problem.filename:
        return problem.filename, problem.lineno
    for frame in reversed(traceback.extract_tb(problem.__traceback__)):
        path = Path(frame.filename)
        if "site-packages" not in path.parts and path.is_relative_to(script.parent):
            return frame.filename, frame.lineno
    return str(script), None


def _quiet_environment(request: CaptureRequest) -> None:
    """No trackers, no hub, one process; the device that accelerate finds is meta."""
    os.environ.update(
        WANDB_MODE="disabled",
        WANDB_SILENT="true",
        COMET_MODE="disabled",
        CLEARML_OFFLINE_MODE="1",
        MLFLOW_TRACKING_URI="file:///tmp/mlflow",
        HF_HUB_OFFLINE="1",
        HF_DATASETS_OFFLINE="1",
        TRANSFORMERS_VERBOSITY="error",
        TOKENIZERS_PARALLELISM="false",
        ACCELERATE_TORCH_DEVICE="meta",
        OMP_NUM_THREADS="1",
    )
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115


if __name__ == "__main__":
    main(sys.argv[1:])
