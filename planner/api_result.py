"""What `plan` and `sweep` give: documents that show themselves in notebooks and become pandas frames."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from planner.errors import InputError
from planner.plan import Candidate, PlanDocument, to_json
from planner.sweep_document import SweepDocument, SweepPoint, sweep_to_json

if TYPE_CHECKING:
    import pandas

    from planner.plan_timeline import Timeline

Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
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
        from reports.frames import frame_of, plan_rows

        return frame_of(plan_rows(self.document))

    def memory_frame(self) -> "pandas.DataFrame":
        """Bytes by candidate and category, in long form."""
        from reports.frames import frame_of, memory_rows

        return frame_of(memory_rows(self.document))

    def timeline(self) -> "Timeline | None":
        """The best plan's step, event by event; None where nothing fits. The search runs again for it."""
        timeline: Timeline | None = self._draw("timeline")
        return timeline

    def html(self, *, timeline: bool = False) -> str:
        """The whole report as one HTML page."""
        from reports.html import render_html

        return render_html(self.document, timeline=self.timeline() if timeline else None)

    def markdown(self, *, top: int = 5) -> str:
        """The report as Markdown."""
        from reports.markdown import render_markdown

        return render_markdown(self.document, top=top)

    def plot(self, kind: str, path: Path, *, force: bool = False) -> None:
        """Draws `timeline`, `breakdown`, `pareto`, `scaling` or `sequence` into a .png, .svg or .pdf file.

        `scaling` and `sequence` plan further points first.
        """
        from reports.plots import read_target

        target = read_target(f"{kind}:{os.fspath(path)}")
        drawn = self._draw(target.kind)
        if drawn is None:
            raise InputError(f"nothing fits, so there is no {kind} to draw")
        if target.kind == "timeline":
            from reports.timeline import write_timeline

            write_timeline(drawn, path, force=force)
            return
        from planner.plan_io import write_bytes
        from reports.plots_style import as_file

        write_bytes(path, as_file(drawn, target.form), force=force)

    def save(self, path: Path, *, force: bool = False) -> None:
        """Writes what the ending says: .html, .md and .csv the report, .json the chosen plan, as `--save` does."""
        from planner.plan_io import save, write_text
        from planner.plan_saved import saved_plan

        ending = PurePath(path).suffix.lower()
        if ending == ".json":
            if self.best is None:
                raise InputError(f"nothing fits, so there is no plan to save to {os.fspath(path)}")
            save(saved_plan(self.document), path, force=force)
            return
        if ending == ".csv":
            from reports.csv_report import render_csv

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
        from reports.frames import frame_of
        from reports.sweep_words import sweep_rows

        return frame_of(sweep_rows(self.document))

    def html(self) -> str:
        """The whole report as one HTML page."""
        from reports.html_sweep import render_sweep_html

        return render_sweep_html(self.document)

    def plot(self, kind: str, path: Path, *, force: bool = False) -> None:
        """Draws `heatmap` or `curve` into a .png, .svg or .pdf file."""
        from planner.plan_io import write_bytes
        from reports.plots import read_target

        target = read_target(f"{kind}:{os.fspath(path)}", sweeping=True)
        from reports.plots_style import as_file
        from reports.plots_sweep import curves, heatmap

        figure = heatmap(self.document) if target.kind == "heatmap" else curves(self.document)
        write_bytes(path, as_file(figure, target.form), force=force)

    def save(self, path: Path, *, force: bool = False) -> None:
        """Writes what the ending says: .json, .csv, .md or .html."""
        from planner.plan_io import write_text

        ending = PurePath(path).suffix.lower()
        if ending == ".json":
            text = sweep_to_json(self.document) + "\n"
        elif ending == ".csv":
            from reports.csv_report import csv_of
            from reports.sweep_words import sweep_rows

            text = csv_of(sweep_rows(self.document))
        elif ending == ".md":
            from reports.sweep_markdown import render_sweep_markdown

            text = render_sweep_markdown(self.document)
        elif ending == ".html":
            text = self.html()
        else:
            raise InputError(f"{os.fspath(path)}: name a file that ends in .json, .html, .md or .csv")
        write_text(path, text, force=force)

    def _repr_html_(self) -> str | None:
        return self.document._repr_html_()
