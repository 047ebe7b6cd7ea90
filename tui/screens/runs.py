"""Runs of this folder: predicted beside measured."""

import time
from pathlib import Path

from rich.text import Text
from textual import work
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.message import Message
from textual.widget import Widget
from textual.widgets import DataTable, Static

from gpu_plan.executor.records.run import GOES_ON
from gpu_plan.tui.picture.scene import Scene
from gpu_plan.tui.screens.panel import Panel


class Watch(Message):
    """A run that still goes on shall be watched."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder


class RunsScreen(Panel):
    """The list; Enter shows a run's report, or watches one that goes on. Esc goes back."""

    help_words = "Enter shows predicted beside measured, or watches a run that goes on. Esc goes back."
    title_words = "Runs of this folder"

    def __init__(self, scene: Scene, folder: Path) -> None:
        super().__init__()
        self._scene, self._folder = scene, folder
        self._found: list[tuple[str, str | None, str]] = []
        """Status, folder and report or problem of each row."""

    def body(self) -> list[Widget]:
        return [
            DataTable[Text](id="runs", cursor_type="row", cell_padding=1),
            VerticalScroll(Static(id="runs-report"), id="runs-scroll"),
        ]

    def on_mount(self) -> None:
        self.query_one("#runs-scroll").display = False
        self.say_title("Runs of this folder: reading ...")
        self._read()

    @work(thread=True, exclusive=True)
    def _read(self) -> None:
        """In a thread: records of long runs are large."""
        from gpu_plan.executor.read_run import Unreadable, read_all
        from gpu_plan.executor.records.run import status_words
        from gpu_plan.reports.run.compare import compare_run
        from gpu_plan.reports.run.listing import HEADER, run_line
        from gpu_plan.reports.run.text import render_run_text
        from gpu_plan.reports.run.words import duration

        rows: list[tuple[str, ...]] = []
        found: list[tuple[str, str | None, str]] = []
        for run in reversed(read_all(self._folder)):
            if isinstance(run, Unreadable):
                rows.append((run.run_id, "unreadable", *("-",) * (len(HEADER) - 2)))
                found.append(("unreadable", None, run.why))
                continue
            line = run_line(run)
            going = line.status in GOES_ON
            took = duration((time.time() if going else run.record.ended or run.last_sign) - run.record.started)
            steps = "-" if line.steps is None else str(line.steps)
            script = Path(line.script or "-").name
            rows.append(
                (line.id, status_words(line.status), script, line.strategy or "-", str(line.attempts), steps, took)
            )
            report = render_run_text(run, compare_run(run), ascii_only=self._scene.ascii_only)
            found.append((line.status, run.folder, report))
        self.app.call_from_thread(self._fill, rows, found)

    def _fill(self, rows: list[tuple[str, ...]], found: list[tuple[str, str | None, str]]) -> None:
        if not self.is_attached:
            return
        self._found = found
        table = self.query_one("#runs", DataTable)
        table.add_columns("run", "status", "script", "strategy", "attempts", "steps", "took")
        for row in rows:
            table.add_row(*(Text(self._scene.safe(cell)) for cell in row))
        self.say_title("Runs of this folder" if rows else f"There are no runs below {self._folder}")
        table.focus()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """The report of a run, or the run itself."""
        event.stop()
        status, folder, report = self._found[event.cursor_row]
        run_id = event.data_table.get_cell_at(Coordinate(event.cursor_row, 0))
        if status in GOES_ON and folder is not None:
            self.dismiss(None)
            self.app.post_message(Watch(Path(folder)))
            return
        self.query_one("#runs").display = False
        scroll = self.query_one("#runs-scroll")
        scroll.display = True
        self.query_one("#runs-report", Static).update(Text(report))
        self.say_title(f"Run {run_id}: predicted beside measured")
        scroll.focus()

    def action_back(self) -> None:
        """From the report to the list, from there to the picture."""
        table = self.query_one("#runs")
        if table.display:
            self.dismiss(None)
            return
        self.query_one("#runs-scroll").display = False
        self.say_title("Runs of this folder")
        table.display = True
        table.focus()
