"""A run while it runs: ranks, memory against the plan, loss and step time, attempts, the end of the log."""

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import DataTable, Static

from gpu_plan.executor.records.run import GOES_ON
from gpu_plan.planner.errors import PlanError
from gpu_plan.reports.clean import keep_columns
from gpu_plan.tui.launching import LAST_LINES, Launched
from gpu_plan.tui.picture.scene import Scene
from gpu_plan.tui.screens.panel import Panel

if TYPE_CHECKING:
    from gpu_plan.executor.records.run import RunRecord
    from gpu_plan.executor.supervise.follow.pulse import Pulses
    from gpu_plan.planner.plan.figures import MemoryFigures

_TAIL_BYTES = 64 * 1024


class WatchScreen(Panel):
    """Follows a run that was launched here, or any run folder."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+x", "interrupt", "Interrupt the run")]
    help_words = "Ctrl+X interrupts the run as Ctrl+C does. Esc leaves it running: w finds it again."
    title_words = "Run"

    def __init__(self, scene: Scene, launched: Launched | None = None, folder: Path | None = None) -> None:
        super().__init__()
        self._scene, self._launched, self._folder = scene, launched, folder
        self._pulses: Pulses | None = None
        self._memory: MemoryFigures | None = None
        self._expected = ""
        self._going = launched is not None

    def body(self) -> list[Widget]:
        return [
            Static(id="watch-state"),
            DataTable[Text](id="watch-ranks", cursor_type="none", cell_padding=1),
            Static(id="watch-attempts"),
            VerticalScroll(Static(id="watch-log"), id="watch-scroll"),
        ]

    def on_mount(self) -> None:
        self.query_one("#watch-ranks", DataTable).add_columns("rank", "status", "step", "loss", "step time", "memory")
        self.set_interval(0.5, self.look)
        self.look()

    def action_interrupt(self) -> None:
        """As Ctrl+C at the command line."""
        if self._launched is not None and self._launched.exit_code is None:
            self._launched.interrupt()
            self.notify("interrupting: the ranks end, and what there was is written")
        else:
            self.notify("nothing that was launched here is running")

    def action_back(self) -> None:
        """Back to the picture; the run does not need anyone to watch it."""
        if self._going and self._launched is not None and self._launched.exit_code is None:
            self.notify("the run goes on, also without the explorer; w finds it again")
        self.dismiss(None)

    def look(self) -> None:
        """Reads what is new of the run."""
        folder = self._launched.folder if self._launched is not None else self._folder
        record = None
        if folder is not None and folder.is_dir():
            record = self._read(folder)
        self._show_state(record)
        self._show_log(folder)

    def _read(self, folder: Path) -> "RunRecord | None":
        from gpu_plan.executor.live.figures import seconds_words
        from gpu_plan.executor.run_folder import RunFolder
        from gpu_plan.executor.supervise.follow.pulse import Pulses
        from gpu_plan.planner.plan.files import load

        run = RunFolder(folder)
        try:
            record = run.read_run()
            plan = load(run.plan).plan
            self._memory = plan.memory
            if plan.speed is not None and plan.inference is None:
                self._expected = f"; the plan expects {seconds_words(plan.speed.step_seconds)} per step"
        except PlanError:
            record = None
        if self._pulses is None:
            self._pulses = Pulses(folder)
        self._show_ranks()
        return record

    def _show_ranks(self) -> None:
        from gpu_plan.executor.live.figures import memory_words, seconds_words

        assert self._pulses is not None
        pulses, changed = self._pulses.look()
        if not changed:
            return
        table = self.query_one("#watch-ranks", DataTable)
        table.clear()
        for pulse in pulses:
            cells = (
                str(pulse.rank),
                pulse.status,
                "-" if pulse.last_step is None else str(pulse.last_step),
                "-" if pulse.loss is None else f"{pulse.loss:.4f}",
                "-" if pulse.step_seconds is None else seconds_words(pulse.step_seconds),
                memory_words(pulse, self._memory),
            )
            table.add_row(*(Text(self._scene.safe(cell)) for cell in cells))

    def _show_state(self, record: "RunRecord | None") -> None:
        from gpu_plan.executor.live.figures import attempt_words, end_words

        if record is None:
            words = "starting ..."
            if self._launched is not None and self._launched.exit_code is not None:
                words = f"ended with exit code {self._launched.exit_code}"
            self.query_one("#watch-state", Static).update(words)
            return
        self.say_title(f"Run {record.run_id}")
        ended = [attempt_words(attempt) for attempt in record.attempts if attempt.ended is not None]
        self._going = record.status in GOES_ON
        words = f"{record.status}, attempt {len(record.attempts)}{self._expected}" if self._going else end_words(record)
        self.query_one("#watch-state", Static).update(Text(self._scene.safe(words), style="bold"))
        self.query_one("#watch-attempts", Static).update(Text("\n".join(map(self._scene.safe, ended))))

    def _show_log(self, folder: Path | None) -> None:
        lines = list(self._launched.log) if self._launched is not None else _tail(folder)
        height = max(3, self.query_one("#watch-scroll").size.height)
        shown = [keep_columns(line, self._scene.safe) for line in lines if line.strip()][-height:]
        self.query_one("#watch-log", Static).update(Text("\n".join(shown), style="dim"))


def _tail(folder: Path | None) -> list[str]:
    """The last lines of the newest log of a run."""
    if folder is None:
        return []
    logs = sorted((path for path in folder.glob("logs/**/*") if path.is_file()), key=lambda path: path.stat().st_mtime)
    if not logs:
        return []
    with logs[-1].open("rb") as file:
        file.seek(max(0, logs[-1].stat().st_size - _TAIL_BYTES))
        return file.read().decode(errors="replace").splitlines()[-LAST_LINES:]
