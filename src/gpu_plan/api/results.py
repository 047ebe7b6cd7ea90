"""What `plan` and `sweep` give: documents that show themselves in notebooks and become pandas frames."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.plan.document import Candidate, PlanDocument, to_json
from gpu_plan.planner.sweep.document import SweepDocument, SweepPoint, sweep_to_json

if TYPE_CHECKING:
    import pandas

    from gpu_plan.planner.plan.timeline import Timeline

Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A finished plan."""

    document: PlanDocument
    """All that was found; what `--json` prints."""
    _draw: Callable[[str], Any] = field(repr=False, compare=False)

    @property
    def best(self) -> Candidate | None:
        """The best plan; None where nothing fits."""
        return self.document.best

    @property
    def fits(self) -> bool:
        """Whether the best plan's verdict is `fits`: neither tight nor none."""
        return self.best is not None and self.best.fits

    def frame(self) -> "pandas.DataFrame":
        """Every candidate as a row, plans best first, losers with their reason; bytes and seconds."""
        from gpu_plan.reports.tables.frames import frame_of, plan_rows

        return frame_of(plan_rows(self.document))

    def memory_frame(self) -> "pandas.DataFrame":
        """Bytes by candidate and category, in long form."""
        from gpu_plan.reports.tables.frames import frame_of, memory_rows

        return frame_of(memory_rows(self.document))

    def timeline(self) -> "Timeline | None":
        """The best plan's step, event by event; None where nothing fits. The search runs again for it."""
        timeline: Timeline | None = self._draw("timeline")
        return timeline

    def html(self, *, timeline: bool = False) -> str:
        """The whole report as one HTML page."""
        from gpu_plan.reports.html.render import render_html

        return render_html(self.document, timeline=self.timeline() if timeline else None)

    def markdown(self, *, top: int = 5) -> str:
        """The report as Markdown."""
        from gpu_plan.reports.plan.markdown import render_markdown

        return render_markdown(self.document, top=top)

    def plot(self, kind: str, path: Path, *, force: bool = False) -> None:
        """Draws `timeline`, `breakdown`, `pareto`, `scaling` or `sequence` into a .png, .svg or .pdf file.

        `scaling` and `sequence` plan further points first.
        """
        from gpu_plan.reports.plots.targets import read_target

        target = read_target(f"{kind}:{os.fspath(path)}")
        drawn = self._draw(target.kind)
        if drawn is None:
            raise InputError(f"nothing fits, so there is no {kind} to draw")
        if target.kind == "timeline":
            from gpu_plan.reports.plots.timeline_file import write_timeline

            write_timeline(drawn, path, force=force)
            return
        from gpu_plan.planner.plan.files import write_bytes
        from gpu_plan.reports.plots.style import as_file

        write_bytes(path, as_file(drawn, target.form), force=force)

    def save(self, path: Path, *, force: bool = False) -> None:
        """Writes what the ending says: .html, .md and .csv the report, .json the chosen plan, as `--save` does."""
        from gpu_plan.planner.plan.files import save, write_text
        from gpu_plan.planner.plan.saved import saved_plan

        ending = PurePath(path).suffix.lower()
        if ending == ".json":
            if self.best is None:
                raise InputError(f"nothing fits, so there is no plan to save to {os.fspath(path)}")
            save(saved_plan(self.document), path, force=force)
            return
        if ending == ".csv":
            from gpu_plan.reports.tables.as_csv import render_csv

            text = render_csv(self.document)
        elif ending in (".md", ".html"):
            text = self.markdown() if ending == ".md" else self.html()
        else:
            raise InputError(f"{os.fspath(path)}: name a file that ends in .json, .html, .md or .csv")
        write_text(path, text, force=force)

    def to_json(self) -> str:
        """The whole document, as `--json` prints it."""
        return to_json(self.document)

    def _repr_html_(self) -> str | None:
        return self.document._repr_html_()


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """A finished sweep."""

    document: SweepDocument
    """What `--sweep ... --json` prints."""
    documents: tuple[PlanDocument | None, ...] = field(repr=False)
    """Of every point, in the order of `document.points`; None where one was refused."""

    @property
    def points(self) -> tuple[SweepPoint, ...]:
        """Every combination of values."""
        return self.document.points

    def frame(self) -> "pandas.DataFrame":
        """Every point as a row: its values, then its best plan's figures, or those of what misses by least."""
        from gpu_plan.reports.sweep.words import sweep_rows
        from gpu_plan.reports.tables.frames import frame_of

        return frame_of(sweep_rows(self.document))

    def html(self) -> str:
        """The whole report as one HTML page."""
        from gpu_plan.reports.html.sweep import render_sweep_html

        return render_sweep_html(self.document)

    def plot(self, kind: str, path: Path, *, force: bool = False) -> None:
        """Draws `heatmap` or `curve` into a .png, .svg or .pdf file."""
        from gpu_plan.planner.plan.files import write_bytes
        from gpu_plan.reports.plots.targets import read_target

        target = read_target(f"{kind}:{os.fspath(path)}", sweeping=True)
        from gpu_plan.reports.plots.style import as_file
        from gpu_plan.reports.plots.sweep import curves, heatmap

        figure = heatmap(self.document) if target.kind == "heatmap" else curves(self.document)
        write_bytes(path, as_file(figure, target.form), force=force)

    def save(self, path: Path, *, force: bool = False) -> None:
        """Writes what the ending says: .json, .csv, .md or .html."""
        from gpu_plan.planner.plan.files import write_text

        ending = PurePath(path).suffix.lower()
        if ending == ".json":
            text = sweep_to_json(self.document) + "\n"
        elif ending == ".csv":
            from gpu_plan.reports.sweep.words import sweep_rows
            from gpu_plan.reports.tables.as_csv import csv_of

            text = csv_of(sweep_rows(self.document))
        elif ending == ".md":
            from gpu_plan.reports.sweep.markdown import render_sweep_markdown

            text = render_sweep_markdown(self.document)
        elif ending == ".html":
            text = self.html()
        else:
            raise InputError(f"{os.fspath(path)}: name a file that ends in .json, .html, .md or .csv")
        write_text(path, text, force=force)

    def _repr_html_(self) -> str | None:
        return self.document._repr_html_()
