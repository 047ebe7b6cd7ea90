"""Launching a saved plan through the command line itself, and following what it says.   I/O"""

import asyncio
import contextlib
import os
import re
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from gpu_plan.planner.own_python import own_command, own_environment

LAST_LINES = 400
_RUN = re.compile(r"^plan: run (\S+)$")


def execute_words(plan: str, script: str, arguments: Sequence[str], *, dry: bool = False) -> list[str]:
    """Words after `plan` that apply a saved plan to a script."""
    words = [f"--plan={plan}", f"--execute={script}", *(["--dry-run"] if dry else [])]
    return [*words, *(["--", *arguments] if arguments else [])]


def _environment() -> dict[str, str]:
    return {**own_environment(os.environ), "PYTHONUNBUFFERED": "1"}


async def preview(plan: str, script: str, arguments: Sequence[str]) -> tuple[int, str]:
    """Exit code and output of `plan --plan FILE --execute SCRIPT --dry-run`."""
    process = await asyncio.create_subprocess_exec(
        *own_command("gpu_plan"), *execute_words(plan, script, arguments, dry=True),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env=_environment(),
    )  # fmt: skip
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode(errors="replace")


class Launched:
    """A job that was launched: its log's last lines, the id of its run, and its exit code in the end."""

    def __init__(self, plan: str, script: str, arguments: Sequence[str]) -> None:
        self.words = execute_words(plan, script, arguments)
        self.log: deque[str] = deque(maxlen=LAST_LINES)
        self.run_id: str | None = None
        self.exit_code: int | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Starts `plan --execute` in a session of its own: the explorer's end does not end it."""
        self._process = await asyncio.create_subprocess_exec(
            *own_command("gpu_plan"), *self.words,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            env=_environment(), start_new_session=True,
        )  # fmt: skip
        self._task = asyncio.create_task(self._follow(self._process))

    @property
    def folder(self) -> Path | None:
        """Where the run's records lie."""
        return None if self.run_id is None else Path.cwd() / "runs" / self.run_id

    def interrupt(self) -> None:
        """As Ctrl+C at the command line: the supervisor ends its ranks and writes what there was."""
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(2)

    async def wait(self) -> int | None:
        """Until it is over."""
        if self._task is not None:
            await self._task
        return self.exit_code

    async def _follow(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        rest = b""
        while chunk := await process.stdout.read(65536):
            *lines, rest = (rest + chunk).split(b"\n")
            for raw in lines:
                self._line(raw)
            rest = rest[-65536:]
        if rest:
            self._line(rest)
        self.exit_code = await process.wait()

    def _line(self, raw: bytes) -> None:
        # A progress bar redraws itself after carriage returns: its last state is the line.
        line = raw.decode(errors="replace").rstrip("\r").rpartition("\r")[2]
        self.log.append(line)
        found = _RUN.match(line)
        if found:
            self.run_id = found[1]
