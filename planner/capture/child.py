"""The capturing child, `-m gpu_plan.planner.capture.child REQUEST PIPE SCRATCH`: runs the user's own code behind walls.

PIPE is a descriptor through which the outcome leaves, and the only way out; SCRATCH an empty folder for what is written
where no wall can redirect it. The process ends with os._exit as soon as the outcome is written, so that nothing of the
script's own clean-up runs.
"""

import contextlib
import gc
import linecache
import os
import resource
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from gpu_plan.planner.capture.request import CapturedFacts, CaptureRequest, Outcome, PlannedDevice, framed
from gpu_plan.planner.capture.script.advice import about
from gpu_plan.planner.capture.script.program import Program
from gpu_plan.planner.capture.unwritten import refusals
from gpu_plan.planner.capture.unwritten.redirect import Redirect
from gpu_plan.planner.capture.watch.problem import described, in_place_of_kernels
from gpu_plan.planner.capture.watch.unsloth import in_place_of
from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.neighbours import admit
from gpu_plan.planner.plan.codec import decode, dump, load_object
from gpu_plan.planner.walls.behind import Standing, in_words
from gpu_plan.planner.walls.guest import NoWallsError, enter, quiet, write_whole

_FRAMES, _MOST_TOLD = 200, 2**18
"""Of a traceback that is kept."""


class Result:
    """The outcome's way out."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe

    def end(self, outcome: Outcome, trace: bytes | None = None) -> NoReturn:
        """Writes and leaves at once."""
        write_whole(self.pipe, framed(dump(outcome).encode(), trace))
        os._exit(0)


def main(words: list[str]) -> NoReturn:
    request = decode(CaptureRequest, load_object(Path(words[0]).read_bytes(), words[0]), words[0])
    result, scratch = Result(int(words[1])), words[2]
    script = Path(request.script)
    os.chdir(request.working_directory)
    admit(os.path.dirname(os.path.realpath(script)))
    started = time.monotonic()
    walls = _walls(request, result, scratch)
    quiet(walls, scratch)
    _quiet_environment(request.device)
    if walls.kind == "landlock":
        refusals.explain(scratch)
        Redirect(scratch).install()
    gc.disable()  # nothing that is imported becomes garbage: a tenth of the time would be spent looking
    # Imported behind the walls: a process that has threads gets no namespaces, and torch starts some.
    from gpu_plan.planner.capture.answers.distributed import launcher_words
    from gpu_plan.planner.capture.window import Window

    window = Window(request, lambda facts, trace: result.end(_captured(facts, started, walls), trace))
    with contextlib.ExitStack() as stack:
        program = Program(script)
        sys.argv = [request.script, *request.arguments, *launcher_words(script, request.arguments)]
        try:
            window.open(stack)  # imports transformers, which may meet a neighbour of the script by another's name
            gc.freeze()  # what is imported would be looked through whenever a trainer collects
            gc.enable()
            program.run()
        except BaseException as problem:
            window.end()
            result.end(_failed(problem, script, window, program.swallowed))
        window.end()
        result.end(_no_step(script, window, program.swallowed))


def _walls(request: CaptureRequest, result: Result, scratch: str) -> Standing:
    """Goes behind them; ends the capture where there are none, unless the user said to go on."""
    try:
        return enter(
            scratch,
            (result.pipe,),
            processes=request.processes,
            written_bytes=request.written_bytes,
            unwalled=request.unwalled,
        )
    except NoWallsError as problem:
        result.end(Outcome(stage="walls", message=f"{problem}, --model plans a model in its place"))


def _captured(facts: CapturedFacts, started: float, walls: Standing) -> Outcome:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Outcome(
        stage="captured",
        facts=replace(
            facts,
            seconds=time.monotonic() - started,
            resident_bytes=peak,
            walls=walls.kind,
            notes=(*facts.notes, in_words(walls, "the script")),
        ),
    )


def _no_step(script: Path, window: Any, swallowed: list[BaseException]) -> Outcome:
    if window.waits_for:
        message = f"ends before each of its optimizers has stepped: they take turns, and {window.waits_for} has not"
    elif window.reached_backward:
        message = "ends after a backward pass without an optimizer step"
    else:
        message = "ends without training a model"
    caught = _caught(script, swallowed)
    return Outcome(
        stage="no_step", message=f"{message}{caught}: name the model with --model, or a factory", file=str(script)
    )


def _caught(script: Path, swallowed: list[BaseException]) -> str:
    """The last exception that the script caught by a handler of everything: most often what ended it."""
    if not swallowed:
        return ""
    file, line = _own_frame(swallowed[-1], script)
    place = f" at {Path(file).name}:{line}" if file and line else ""
    return f"; the last exception that it caught itself was {described(swallowed[-1])}{place}"


def _failed(problem: BaseException, script: Path, window: Any, swallowed: list[BaseException]) -> Outcome:
    from gpu_plan.planner.capture.answers.pretrained import NeedsConfigError

    needed = _cause(problem, NeedsConfigError)
    if needed is not None:
        return Outcome(stage="network", message=str(needed), needs=needed.name)
    file, line = _own_frame(problem, script)
    if isinstance(problem, SystemExit):
        code = problem.code
        text = "" if code in (None, 0) else f": {str(code).strip().splitlines()[0][:200]}" if str(code).strip() else ""
        caught = "" if text else _caught(script, swallowed)
        return Outcome(
            stage="exited", message=f"exits before its first optimizer step{text}{caught}", file=file, line=line
        )
    if isinstance(problem, EOFError):
        return Outcome(stage="input", message="asks for input, and nobody answers", file=file, line=line)
    instead = _without_unsloth(problem, script)
    if instead is not None:
        return Outcome(stage="unsupported", message=instead, file=file, line=line)
    advice = about(problem, linecache.getline(file, line) if file and line else "")
    if advice:
        return Outcome(stage="unsupported", message=advice, file=file, line=line)
    plain = isinstance(problem, PlanError)
    text = str(problem)[:300] if plain else described(problem) + in_place_of_kernels(problem)
    whole = "" if plain else "".join(traceback.format_exception(problem, limit=-_FRAMES))[-_MOST_TOLD:]
    return Outcome(stage="unsupported" if plain else "raised", message=text, file=file, line=line, whole=whole)


def _without_unsloth(problem: BaseException, script: Path) -> str | None:
    """What to write where unsloth cannot be imported: it is not installed, or finds no GPU."""
    missing = isinstance(problem, ModuleNotFoundError) and problem.name == "unsloth"
    if not missing and not _raised_in(problem, "unsloth", "unsloth_zoo"):
        return None
    with contextlib.suppress(OSError):
        command = in_place_of(script.read_text(encoding="utf-8", errors="replace"))
        if command is not None:
            return f"unsloth cannot be imported without its GPU: what it is given is planned by `{command} --gpus ...`"
    return "unsloth cannot be imported without its GPU: --model MODEL --stack unsloth plans its model by name"


def _raised_in(problem: BaseException, *packages: str) -> bool:
    """Whether the innermost frame belongs to one of these packages."""
    frames = traceback.extract_tb(problem.__traceback__)
    return bool(frames) and any(package in Path(frames[-1].filename).parts for package in packages)


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


def _quiet_environment(device: PlannedDevice) -> None:
    """No trackers, one process, the planned device."""
    os.environ.update(
        WANDB_MODE="disabled",
        WANDB_SILENT="true",
        COMET_MODE="disabled",
        CLEARML_OFFLINE_MODE="1",
        MLFLOW_TRACKING_URI="file:///tmp/mlflow",
        TOKENIZERS_PARALLELISM="false",
        # By its own name: what refuses other devices (fp16) must not refuse this one. `placement` puts it on meta.
        ACCELERATE_TORCH_DEVICE="meta" if device.capability_major is None else "cuda",
        OMP_NUM_THREADS="1",
    )
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)


if __name__ == "__main__":
    main(sys.argv[1:])
