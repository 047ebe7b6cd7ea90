"""The explorer's side of one planner process.   I/O"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping

from gpu_plan.planner.own_python import own_command, own_environment
from gpu_plan.tui.engine.messages import HEAD_BYTES, Reply, length, packed, unpacked

_LAST_LINES = 4096


class PlannerProcess:
    """Starts, feeds and reads one child. Replies and its end are told on the event loop that started it."""

    def __init__(
        self,
        kind: str,
        on_reply: Callable[[Reply], None],
        on_end: Callable[[str, str], None],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.kind = kind
        self._on_reply, self._on_end = on_reply, on_end
        self._environment = dict(os.environ if environment is None else environment)
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._said = b""
        self._stopping = False

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Starts the child. OSError where the system refuses."""
        environment = {**self._environment, "TRANSFORMERS_VERBOSITY": "error", "TQDM_DISABLE": "1"}
        self._process = await asyncio.create_subprocess_exec(
            *own_command("gpu_plan.tui.engine.child"), self.kind,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env=own_environment(environment), start_new_session=True,
        )  # fmt: skip
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._listen())]

    def send(self, message: object) -> None:
        """Hands over an ask or a parcel; one to a child that is gone is dropped, its end was told."""
        process = self._process
        if process is None or process.stdin is None or process.returncode is not None:
            return
        with contextlib.suppress(OSError, RuntimeError):
            process.stdin.write(packed(message))

    async def stop(self) -> None:
        """Ends the child and everything that it said."""
        self._stopping = True
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _read(self) -> None:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                size = length(await process.stdout.readexactly(HEAD_BYTES))
                reply = unpacked(await process.stdout.readexactly(size))
                if isinstance(reply, Reply):
                    self._on_reply(reply)
        code = await process.wait()
        if not self._stopping:
            self._on_end(self.kind, _end_words(code, self._said))

    async def _listen(self) -> None:
        """Keeps the last that the child said on stderr."""
        process = self._process
        assert process is not None
        assert process.stderr is not None
        while chunk := await process.stderr.read(_LAST_LINES):
            self._said = (self._said + chunk)[-_LAST_LINES:]


def _end_words(code: int, said: bytes) -> str:
    lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    return how + (f": {lines[-1][:200]}" if lines else "")
