"""Starts the capturing child, holds it to its limits, and reads what it found (I/O)."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import IO

from gpu_plan.planner.capture.request import CaptureRequest, Outcome
from gpu_plan.planner.errors import InputError, UnreachableError
from gpu_plan.planner.own_python import own_command, own_environment
from gpu_plan.planner.plan.codec import decode, dump, load_object

_POLL_SECONDS = 0.05
_PAGE = os.sysconf("SC_PAGE_SIZE")
_OUTPUT_BYTES = 64 * 1024


class CaptureError(InputError):
    """The script cannot be captured; the message names the file, the line and what to do."""


def capture(request: CaptureRequest) -> tuple[Outcome, bytes]:
    """Runs `request` in a child; gives its outcome and trace. CaptureError in one line where there is no step.

    A model whose config the closed network hides is looked up here, and the child started once more.
    """
    for _ in range(8):
        outcome, trace, said = _run(request)
        if outcome.needs is None:
            break
        request = replace(request, configs={**request.configs, outcome.needs: _config_of(outcome.needs)})
    if outcome.stage == "captured" and trace is not None:
        return outcome, trace
    raise CaptureError(_line(request, outcome, said))


def _line(request: CaptureRequest, outcome: Outcome, said: str) -> str:
    where = outcome.file or request.script
    place = f"{where}:{outcome.line}" if outcome.line is not None else where
    hint = "" if "--model" in outcome.message else "; name the model with --model, or a factory, to plan without it"
    last = said.strip().splitlines()[-1][:160] if outcome.stage == "exited" and said.strip() else ""
    told = f" ({last})" if last and last not in outcome.message else ""
    return f"{place}: {outcome.message}{told}{hint}"


def _config_of(name: str) -> str:
    from gpu_plan.planner.model.source.resolve import resolve

    source = resolve(name, read_headers=False)
    if source.config is None:
        raise UnreachableError(f"{name} has no config")
    return json.dumps(source.config)


def _run(request: CaptureRequest) -> tuple[Outcome, bytes | None, str]:
    folder = Path(tempfile.mkdtemp(prefix="plan-captured-"))
    try:
        (folder / "request.json").write_text(dump(request), encoding="utf-8")
        words = [*own_command("gpu_plan.planner.capture.child"), str(folder / "request.json"), str(folder)]
        process = subprocess.Popen(
            words,
            cwd=request.working_directory,
            env=own_environment(os.environ, directory=Path(request.working_directory), script=Path(request.script)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert process.stdout is not None
        tail = _Tail(process.stdout)
        broken = _watch(process, request)
        tail.join()
        if broken is not None:
            return Outcome(stage="limit", message=broken, file=request.script), None, tail.text
        return *_read(folder, process.returncode, request), tail.text
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Tail(threading.Thread):
    """Reads the child's output to its end and keeps only the last of it."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self._stream, self._kept = stream, b""
        self.start()

    def run(self) -> None:
        while piece := self._stream.read1(_OUTPUT_BYTES):  # type: ignore[attr-defined]
            self._kept = (self._kept + piece)[-_OUTPUT_BYTES:]

    @property
    def text(self) -> str:
        return self._kept.decode("utf-8", "replace")

    def join(self, timeout: float | None = 5.0) -> None:
        super().join(timeout)


def _watch(process: subprocess.Popen[bytes], request: CaptureRequest) -> str | None:
    """Waits for the child; ends it, and says why, when it passes a limit."""
    deadline = time.monotonic() + request.seconds
    try:
        while process.poll() is None:
            if time.monotonic() > deadline:
                return f"has not reached an optimizer step after {request.seconds:.0f} s"
            broken = _passed(process.pid, request)
            if broken is not None:
                return broken
            time.sleep(_POLL_SECONDS)
        return None
    finally:
        _end_session(process)


def _passed(session: int, request: CaptureRequest) -> str | None:
    """Which limit the processes of a session are past, if any."""
    resident = _resident(session)
    if len(resident) > request.processes:
        return f"starts more than {request.processes} processes before its first step"
    if sum(resident.values()) <= request.resident_bytes:
        return None
    # Forked processes share pages: each counts its part only where the plain sum is too much.
    if sum(_proportional(process) for process in resident) <= request.resident_bytes:
        return None
    return f"takes more than {request.resident_bytes / 2**30:.0f} GiB of real memory before its first step"


def _resident(session: int) -> dict[int, int]:
    """Resident bytes of every process of a session."""
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            stat = Path(f"/proc/{entry.name}/stat").read_text().rpartition(")")[2].split()
            if int(stat[3]) == session:
                found[int(entry.name)] = int(stat[21]) * _PAGE
        except (OSError, IndexError, ValueError):
            continue
    return found


def _proportional(process: int) -> int:
    """Bytes of a process with shared pages divided among those that share them; 0 once it has gone."""
    try:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, IndexError, ValueError):
        pass
    return 0


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """Nothing that the script started outlives it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read(folder: Path, code: int, request: CaptureRequest) -> tuple[Outcome, bytes | None]:
    path = folder / "outcome.json"
    if not path.is_file():
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return Outcome(stage="exited", message=f"ends the process before its first step ({how})"), None
    outcome = decode(Outcome, load_object(path.read_bytes(), str(path)), str(path))
    trace = folder / "trace.npz"
    return outcome, trace.read_bytes() if trace.is_file() else None
