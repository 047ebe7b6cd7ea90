"""A factory's workshop in a process of its own, behind walls (I/O)."""

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import IO

from gpu_plan.planner.errors import InputError, NotBuiltError, PlanError, UnreachableError, UsageError
from gpu_plan.planner.model.adapter import Adapter
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.model.spec import ModelSpec, spec_from
from gpu_plan.planner.own_python import own_command, own_environment
from gpu_plan.planner.plan.codec import dump, load_object
from gpu_plan.planner.trace.device import DeviceKind
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.storage import CorruptTraceError, load
from gpu_plan.planner.trace.variant import StepVariant
from gpu_plan.planner.trace.walled.frames import Ask, Opening, receive, send
from gpu_plan.planner.visible import visible
from gpu_plan.planner.walls.environment import without_secrets
from gpu_plan.planner.walls.processes.watch import POLL_SECONDS, Limits, Watch, end

_SECONDS, _RESIDENT_BYTES, _WRITTEN_BYTES, _PROCESSES = 600.0, 8 * 2**30, 2**30, 64
_KINDS: dict[str, type[PlanError]] = {
    "usage": UsageError,
    "unreachable": UnreachableError,
    "not built": NotBuiltError,
}


class WalledSession:
    """Stands where gpu_plan.planner.trace.session.TracingSession stands for a model that is not the user's own code."""

    def __init__(
        self,
        source: ModelSource,
        device: DeviceKind,
        attention: str,
        adapter: Adapter | None = None,
        *,
        seconds: float | None = None,
        unwalled: bool = False,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._id = source.id
        scratch = Path(tempfile.mkdtemp(prefix="plan-factory-"))
        self._process, self._questions, self._answers = _started(scratch)
        weakref.finalize(self, _ended, self._process, self._questions, self._answers, scratch)
        limits = Limits(
            name=source.id,
            aim="a traced step",
            seconds=seconds or _SECONDS,
            resident_bytes=_RESIDENT_BYTES,
            written_bytes=_WRITTEN_BYTES,
            processes=_PROCESSES,
        )
        self._watch = Watch(limits, self._process.pid, scratch, note)
        opening = Opening(
            factory=source.id,
            digest=source.digest,
            directory=os.getcwd(),
            path=tuple(sys.path),
            device=device,
            attention=attention,
            adapter=adapter,
            unwalled=unwalled,
            scratch=str(scratch),
            processes=_PROCESSES,
            written_bytes=_WRITTEN_BYTES,
        )
        self._say(dump(opening))
        self.walls = visible(str(self._json(None, "a word about its walls")))
        """What stands around it, in words."""
        self._spec = self._asked_spec()

    def spec(self) -> ModelSpec:
        """Parameters and identity."""
        return self._spec

    def trace(self, variant: StepVariant, micro_batch: int) -> StepTrace:
        """As TracingSession.trace; what the process answers is checked as a kept trace is."""
        content = self._asked(Ask(variant=variant, micro_batch=micro_batch), b"T")
        try:
            return load(content)
        except CorruptTraceError as problem:
            raise InputError(f"{self._id}: what its process reports is not a trace: {problem}") from None

    def _asked_spec(self) -> ModelSpec:
        found = self._json(Ask(), "a model")
        try:
            return spec_from(found if isinstance(found, dict) else {})
        except (ValueError, TypeError, KeyError):
            raise InputError(f"{self._id}: what its process reports is not a model") from None

    def _json(self, ask: Ask | None, what: str) -> object:
        try:
            return json.loads(self._asked(ask, b"J"))
        except (ValueError, RecursionError):
            raise InputError(f"{self._id}: what its process reports is not {what}") from None

    def _asked(self, ask: Ask | None, kind: bytes) -> bytes:
        self._watch.begin()
        if ask is not None:
            self._say(dump(ask))
        answer = receive(self._read)
        if answer is None:
            end(self._process)
            raise InputError(f"{self._id} ends the process that builds it (exit code {self._process.returncode})")
        if answer[0] == b"E":
            told = load_object(answer[1], "what its process reports")
            message, named = visible(str(told.get("message"))), str(told.get("kind"))
            raise _KINDS.get(named, InputError)(
                f"{self._id} {message}" if message.startswith("is not executed") else message
            )
        if answer[0] != kind:
            raise InputError(f"{self._id}: what its process reports is not an answer")
        return answer[1]

    def _say(self, text: str) -> None:
        # Who reads no more says so by the end of its answers.
        with contextlib.suppress(OSError):
            send(self._questions, b"J", text.encode())

    def _read(self, size: int) -> bytes:
        """Exactly so many bytes, or fewer at the end. InputError where a limit is passed meanwhile."""
        pieces, missing = [], size
        while missing:
            ready, _, _ = select.select([self._answers], [], [], POLL_SECONDS)
            if ready:
                piece = os.read(self._answers, min(missing, 1 << 20))
                if not piece:
                    break
                pieces.append(piece)
                missing -= len(piece)
            elif (broken := self._watch.broken()) is not None:
                end(self._process)
                raise InputError(f"{self._id} {broken}")
        return b"".join(pieces)


def _started(scratch: Path) -> "tuple[subprocess.Popen[bytes], int, int]":
    """The process, where it is asked, and where it answers."""
    inner_questions, questions = os.pipe()
    answers, inner_answers = os.pipe()
    try:
        process = subprocess.Popen(
            [*own_command("gpu_plan.planner.trace.walled.child"), str(inner_questions), str(inner_answers)],
            env=without_secrets(own_environment(os.environ)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(inner_questions, inner_answers),
            start_new_session=True,
        )
    except BaseException:
        os.close(questions)
        os.close(answers)
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    finally:
        os.close(inner_questions)
        os.close(inner_answers)
    assert process.stdout is not None
    threading.Thread(target=_passed_on, args=(process.stdout,), daemon=True).start()
    return process, questions, answers


def _passed_on(said: IO[bytes]) -> None:
    """What the factory prints goes to stderr, as text."""
    with said, contextlib.suppress(OSError, ValueError):
        for line in iter(lambda: said.readline(4096), b""):
            print(visible(line.decode("utf-8", "replace").rstrip("\r\n")), file=sys.stderr)


def _ended(process: "subprocess.Popen[bytes]", questions: int, answers: int, scratch: Path) -> None:
    os.close(questions)
    os.close(answers)
    end(process)
    shutil.rmtree(scratch, ignore_errors=True)
