"""`datasets.load_dataset` and `load_from_disk`: what they do not find is stood in for."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from gpu_plan.planner.capture.imports import when_imported
from gpu_plan.planner.capture.standin.columns import columns_in
from gpu_plan.planner.capture.standin.rows import ROWS, shown, value
from gpu_plan.planner.capture.standin.schemas import schema_of, splits_of
from gpu_plan.planner.capture.standin.told import Told
from gpu_plan.planner.errors import InputError

_FORMATS = frozenset({"json", "csv", "text", "parquet", "arrow", "pandas"})
_MISSING = frozenset({
    "DatasetNotFoundError", "ConnectionError", "FileNotFoundError", "OfflineModeIsEnabled", "DataFilesNotFoundError",
})  # fmt: skip
Sources = Callable[[], Iterable[str]]


def stand_in_for_data_sets(told: Told, sources: Sources, words: Iterable[str]) -> None:
    """For the rest of the process; `sources()` gives the texts of the script and its neighbours, `words` its arguments.

    Patches `datasets` only where it is imported.
    """

    def take(module: Any) -> None:
        if hasattr(module, "load_dataset"):  # else a folder of the user's own that is called so
            _Loading(module, told, sources, tuple(words)).install()

    when_imported("datasets", take)


class _Loading:
    """`datasets` under watch."""

    def __init__(self, module: Any, told: Told, sources: Sources, words: tuple[str, ...]) -> None:
        self._module, self._told, self._sources, self._words = module, told, sources, words

    def install(self) -> None:
        module = self._module
        load, from_disk = module.load_dataset, module.load_from_disk
        class_select, class_parted = module.Dataset.select, module.Dataset.train_test_split

        def load_dataset(path: str, name: str | None = None, *args: Any, **kwargs: Any) -> Any:
            try:
                return load(path, name, *args, **kwargs)
            except (OSError, ValueError) as problem:
                if not self._is_missing(problem):
                    raise
                return self._made(str(path), name, kwargs.get("split"), bool(kwargs.get("streaming")), kwargs)

        def load_from_disk(path: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return from_disk(path, *args, **kwargs)
            except FileNotFoundError:
                return self._made(str(path), None, None, False, kwargs)

        def select(data: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
            if data.info.description == _MARK:  # a stand-in has fewer rows than what it stands for
                rows = len(data)
                indices = [index % rows for index in indices][: 4 * rows]
            return class_select(data, indices, *args, **kwargs)

        def train_test_split(
            data: Any, test_size: Any = None, train_size: Any = None, *args: Any, **kwargs: Any
        ) -> Any:
            if data.info.description == _MARK and any(isinstance(size, int) for size in (test_size, train_size)):
                test_size, train_size = 0.25, None
            return class_parted(data, test_size, train_size, *args, **kwargs)

        module.load_dataset, module.load_from_disk = load_dataset, load_from_disk
        module.Dataset.select, module.Dataset.train_test_split = select, train_test_split
        for home in ("load", "arrow_dataset"):
            inner = getattr(module, home, None)
            if inner is not None and hasattr(inner, "load_dataset"):
                inner.load_dataset = load_dataset

    @staticmethod
    def _is_missing(problem: BaseException) -> bool:
        """Whether the set is not at hand; a wrong argument is the script's own business."""
        names = {kind.__name__ for kind in type(problem).__mro__}
        return bool(names & _MISSING) or "Couldn't find" in str(problem) or "Couldn't reach" in str(problem)

    def _made(self, name: str, config: str | None, split: Any, streaming: bool, kwargs: Mapping[str, Any]) -> Any:
        files = kwargs.get("data_files")
        shown_name = f"{name} {files}"[:80] if name in _FORMATS and files else "/".join(filter(None, (name, config)))
        self._told.need(f"the data set {shown_name}")
        known = None if name in _FORMATS else schema_of(name, config)
        kinds = dict(known or columns_in(self._sources(), self._words))
        if not kinds:
            raise InputError(
                f"the data set {shown_name} is not at hand, and the script's text names none of its columns: give its"
                " files to the script"
            )
        basis = "as its card has them" if known else "as the script asks for them"
        self._told.tell(
            f"data set {shown_name} is a stand-in of {ROWS} rows with the columns {shown(kinds)}, {basis}: how long its"
            " rows really are is not known here"
        )
        if split is not None:
            return self._split(kinds, split, streaming)
        names = tuple(files) if isinstance(files, dict) else splits_of(name)
        made = _Splits({each: self._split(kinds, each, streaming) for each in names})
        made.more = lambda each: self._split(kinds, each, streaming)
        return self._as_dict(made, streaming)

    def _as_dict(self, splits: "_Splits", streaming: bool) -> Any:
        kind = self._module.IterableDatasetDict if streaming else self._module.DatasetDict

        class AnySplit(kind):  # type: ignore[misc,valid-type]
            """Has every split that is asked for by name."""

            def __missing__(self, name: str) -> Any:
                self[name] = splits.more(name)
                return self[name]

        return AnySplit(splits)

    def _split(self, kinds: Mapping[str, str], split: Any, streaming: bool) -> Any:
        if isinstance(split, list | tuple):
            return [self._split(kinds, each, streaming) for each in split]
        columns = {name: [value(kind, row) for row in range(ROWS)] for name, kind in kinds.items()}
        made = self._module.Dataset.from_dict(columns)
        for name, kind in kinds.items():
            if kind.startswith("label:"):
                classes = [str(number) for number in range(int(kind.partition(":")[2]))]
                made = made.cast_column(name, self._module.ClassLabel(names=classes))
        made.info.description = _MARK
        made._split = self._module.NamedSplit(re.split(r"[\[+]", str(split))[0])
        return made.to_iterable_dataset() if streaming else made


class _Splits(dict[str, Any]):
    """Splits by name, and how one more is made."""

    more: Callable[[str], Any]


_MARK = "a stand-in of plan"


def texts_beside(script: Path) -> list[str]:
    """The script and the Python files beside it."""
    found = []
    for path in [script, *(other for other in sorted(script.parent.glob("*.py"))[:50] if other != script)]:
        try:
            found.append(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
    return found[:1] if len(found) > 1 and columns_in(found[:1]) else found
