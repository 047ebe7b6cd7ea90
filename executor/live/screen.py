"""A run on a terminal: a few lines that stand at the bottom while the script's own output scrolls above (I/O)."""

import shlex
import time
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gpu_plan.executor.live.figures import (
    attempt_words,
    end_words,
    first_step_words,
    memory_words,
    not_finite_words,
    phase_words,
    planned_bytes,
    progress_words,
    seconds_words,
    step_words,
)
from gpu_plan.executor.supervise.events import Event
from gpu_plan.executor.supervise.follow.phases import LAUNCHER, WORDS
from gpu_plan.executor.supervise.follow.pulse import Pulse
from gpu_plan.planner.visible import visible

if TYPE_CHECKING:
    from gpu_plan.planner.plan.figures import MemoryFigures

_MOST_RANKS = 16
"""Rows; beyond, only the ranks that take the most memory are listed."""


class ScreenView:
    """Use as a context manager; the instance itself is what the supervisor calls."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out = out
        self._console = Console(file=err, stderr=True, highlight=False)
        self._memory: MemoryFigures | None = None
        self._pulses: tuple[Pulse, ...] = ()
        self._head = self._warned = self._phase = ""
        self._began = time.monotonic()
        self._pending: dict[bool, str] = {}
        self._ended = False
        self._live = Live(
            console=self._console,
            refresh_per_second=4,
            transient=True,
            redirect_stderr=False,
            get_renderable=self._picture,
        )

    def __enter__(self) -> "ScreenView":
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._flush()
        self._live.stop()

    def __call__(self, event: Event) -> None:
        """Shows one event."""
        match event.kind:
            case "run":
                self._say(f"run {event.record.run_id}")
            case "launch":
                self._launch(event)
            case "output":
                self._output(event.error_stream, event.text)
            case "pulse":
                self._pulses = event.pulses
                if not self._warned:
                    self._warned = not_finite_words(event.pulses)
                    self._say(self._warned, "bold red")
            case "note":
                self._say(event.text)
            case "phase":
                self._phase = phase_words(event.phase, event.phases)
                if not self._phase:
                    self._say(first_step_words(event.record, event.phases), "dim")
            case "attempt" if event.attempt is not None:
                self._flush()
                self._say(progress_words(self._pulses, self._memory))
                self._say(attempt_words(event.attempt), "bold" if event.attempt.cause == "success" else "bold red")
                for deviation in event.attempt.deviations:
                    self._say(f"deviation: {deviation}", "yellow")
            case "end":
                self._say(end_words(event.record), "bold")
        if event.kind == "end":
            self._ended = True

    def _launch(self, event: Event) -> None:
        attempt = event.record.attempts[-1]
        self._memory = event.plan.plan.memory if event.plan is not None else None
        self._pulses, self._began, self._warned = (), time.monotonic(), ""
        self._head, self._phase = f"attempt {attempt.number}", WORDS[LAUNCHER]
        for change in attempt.changes:
            self._say(change, "yellow")
        where = f", from {attempt.resumed_from}" if attempt.resumed_from else ""
        self._say(f"attempt {attempt.number}{where}: {shlex.join(event.command)}", "dim")

    def _picture(self) -> RenderableType:
        if self._ended or not self._head:
            return Text("")
        words = step_words(self._pulses) or self._phase
        since = seconds_words(time.monotonic() - self._began)
        head = Text(f"{self._head} · {since} · {words}", style="bold", no_wrap=True, overflow="ellipsis")
        shown = self._pulses
        if len(shown) > _MOST_RANKS:
            shown = tuple(sorted(shown, key=lambda pulse: -(pulse.memory_bytes or 0))[:_MOST_RANKS])
        table = Table.grid(padding=(0, 2))
        for pulse in shown:
            step = "-" if pulse.last_step is None else str(pulse.last_step)
            memory = Text(memory_words(pulse, self._memory), style=self._style(pulse))
            table.add_row(f"rank {pulse.rank}", Text(visible(pulse.status)), f"step {step}", memory)
        return Group(head, table)

    def _style(self, pulse: Pulse) -> str:
        planned = planned_bytes(self._memory, pulse.memory_kind)
        if planned is None or pulse.memory_bytes is None or self._memory is None:
            return ""
        if pulse.memory_bytes > self._memory.device_used_high_bytes:
            return "red"
        return "yellow" if pulse.memory_bytes > planned * 1.05 else "green"

    def _output(self, error: bool, text: str) -> None:
        if not error and not self._out.isatty():
            self._out.write(text)
            self._out.flush()
            return
        whole, newline, rest = (self._pending.get(error, "") + text).rpartition("\n")
        if newline:
            for line in whole.split("\n"):
                # A progress bar redraws itself after carriage returns: its last state is the line.
                self._console.print(Text.from_ansi(line.rstrip("\r").rpartition("\r")[2]))
        self._pending[error] = rest.rpartition("\r")[2] if len(rest) > 4096 else rest

    def _flush(self) -> None:
        for error, rest in self._pending.items():
            if rest.strip():
                self._console.print(Text.from_ansi(rest.rstrip("\r").rpartition("\r")[2]))
            self._pending[error] = ""

    def _say(self, text: str, style: str = "") -> None:
        if text:
            self._console.print(Text(visible(f"plan: {text}"), style=style))
