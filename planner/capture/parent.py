"""Starts the capturing child, holds it to its limits, and reads what it found (I/O)."""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from gpu_plan.planner.cache_dir import cache_dir
from gpu_plan.planner.capture.progress import watch
from gpu_plan.planner.capture.request import MOST_BYTES, CaptureRequest, Outcome, unframed
from gpu_plan.planner.capture.script.advice import about_arguments
from gpu_plan.planner.errors import InputError, PlanError, UnreachableError
from gpu_plan.planner.own_python import own_command, own_environment
from gpu_plan.planner.plan.codec import decode, dump, load_object
from gpu_plan.planner.visible import visible
from gpu_plan.planner.walls.environment import without_secrets
from gpu_plan.planner.walls.processes.watch import Reader

_OUTPUT_BYTES = 64 * 1024
_KEPT = 50
"""Tracebacks: beyond, the oldest go."""
Note = Callable[[str], None]


class CaptureError(InputError):
    """The script cannot be captured; the message names the file, the line and what to do."""


def capture(
    request: CaptureRequest, note: Note = lambda _: None, configs: dict[str, str] | None = None
) -> tuple[Outcome, bytes]:
    """Runs `request` in a child; gives its outcome and trace. CaptureError in one line where there is no step.

    `note` is told how long it has been going on, where it takes long.

    A model whose config the closed network hides is looked up here, and the child started once more; `configs` are
    those that are known already, and take what is found.
    """
    known = {} if configs is None else configs
    for _ in range(8):
        outcome, trace, said = _run(replace(request, configs={**known, **request.configs}), note)
        if outcome.needs is None:
            break
        known[outcome.needs] = _sent(request, outcome.needs, known)
    if outcome.stage == "captured" and trace is not None:
        return outcome, trace
    raise CaptureError(_line(request, outcome, said))


def _line(request: CaptureRequest, outcome: Outcome, said: str) -> str:
    where = outcome.file or request.script
    place = f"{where}:{outcome.line}" if outcome.line is not None else where
    hint = "" if "--model" in outcome.message else "; name the model with --model, or a factory, to plan without it"
    missed = about_arguments(Path(request.script).name, said) if outcome.stage == "exited" else ""
    if missed:
        hint = f"; {missed}"
    last = said.strip().splitlines()[-1][:160] if outcome.stage == "exited" and said.strip() else ""
    told = f" ({last})" if last and last not in outcome.message else ""
    return visible(f"{place}: {outcome.message}{told}{hint}{_kept(outcome.whole)}")


def _kept(whole: str) -> str:
    """Where the traceback lies from now on; nothing where there is none, or no place for it."""
    if not whole:
        return ""
    content = whole.encode("utf-8", "replace")
    folder = cache_dir() / "tracebacks"
    path = folder / f"{hashlib.sha256(content).hexdigest()[:12]}.txt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=".new-")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
        for old in sorted(folder.glob("*.txt"), key=lambda one: one.stat().st_mtime)[:-_KEPT]:
            old.unlink()
    except OSError:
        return ""
    return f"; the whole traceback: {path}"


def _sent(request: CaptureRequest, name: str, known: Mapping[str, str]) -> str:
    """A config for the child; empty where there is none and what only asks for its size may be stood in for."""
    try:
        return _config_of(name)
    except PlanError:
        if not request.standin or name in known:
            raise
        return ""


def _config_of(name: str) -> str:
    from gpu_plan.planner.model.source.resolve import resolve

    source = resolve(name, read_headers=False)
    if source.config is None:
        raise UnreachableError(f"{name} has no config")
    return json.dumps(source.config)


def _run(request: CaptureRequest, note: Note) -> tuple[Outcome, bytes | None, str]:
    folder = Path(tempfile.mkdtemp(prefix="plan-captured-"))
    try:
        (folder / "request.json").write_text(dump(request), encoding="utf-8")
        scratch = folder / "scratch"
        scratch.mkdir()
        inward, outward = os.pipe()
        words = [
            *own_command("gpu_plan.planner.capture.child"),
            str(folder / "request.json"),
            str(outward),
            str(scratch),
        ]
        environment = own_environment(
            os.environ, directory=Path(request.working_directory), script=Path(request.script)
        )
        try:
            process = subprocess.Popen(
                words,
                cwd=request.working_directory,
                env=without_secrets(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(outward,),
                start_new_session=True,
            )
        except BaseException:
            os.close(inward)
            raise
        finally:
            os.close(outward)
        assert process.stdout is not None
        said, told = Reader(process.stdout, kept=_OUTPUT_BYTES), Reader(os.fdopen(inward, "rb"), most=MOST_BYTES)
        broken = watch(process, request, scratch, note)
        said.join()
        told.join()
        text = said.content.decode("utf-8", "replace")
        if broken is not None:
            return Outcome(stage="limit", message=broken, file=request.script), None, text
        return *_read(told.content, process.returncode), text
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read(content: bytes, code: int) -> tuple[Outcome, bytes | None]:
    """What came through the pipe; the script may have written into it too."""
    found = unframed(content)
    if found is None:
        how = f"signal {code - 128 if code > 128 else -code}" if code > 128 or code < 0 else f"exit code {code}"
        return Outcome(stage="exited", message=f"ends the process before its first step ({how})"), None
    outcome, trace = found
    return decode(Outcome, load_object(outcome, "the capture's outcome"), "the capture's outcome"), trace
