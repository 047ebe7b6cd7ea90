"""What a job took when its baseline was made: one small file per job that a reviewer can read. Pure.

Every figure stands on a line of its own, keys are sorted, and lines of source stand for themselves instead of their
numbers, so that a change that moves lines moves nothing here.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.foreign.as_json import json_value
from gpu_plan.planner.plan.codec import canonical, decode, load_object, plain
from gpu_plan.planner.regression.places import json_line

SCHEMA_VERSION = 1
_CONFLICT = re.compile(r"^(?:<{7}|={7}|>{7}|\|{7})(?: |$)", re.MULTILINE)
_SEPARATOR = " | "


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Why bytes stand at the peak: equal tensors of repeated blocks together."""

    category: str
    module: str
    """Qualified name; `*` stands for the index of repeated blocks."""
    operator: str
    file: str = ""
    """File of the project that holds the line that made them; empty where none did."""
    text: str = ""
    """What that line says."""

    def key(self) -> str:
        """As one string, as baseline files have it."""
        return _SEPARATOR.join((self.category, self.module, self.operator, self.file, self.text)).rstrip(" |")

    @staticmethod
    def of_key(key: str) -> "Standing":
        """What `key` wrote."""
        parts = (key.split(_SEPARATOR, 4) + [""] * 5)[:5]
        return Standing(category=parts[0], module=parts[1], operator=parts[2], file=parts[3], text=parts[4])


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """One job's figures with everything they were made for."""

    schema_version: int = SCHEMA_VERSION
    document: Literal["check-baseline"] = "check-baseline"
    job: str
    configuration: Mapping[str, object]
    """Every value of the model, the cluster, the workload and the strategy, by dotted name."""
    figures: Mapping[str, int]
    """Bytes, microseconds and counts by dotted name."""
    phase_of_peak: str
    standing: Mapping[str, int]
    """Bytes at the peak by `Standing.key`; the smallest together under `OTHERS`."""
    verdict: str
    versions: Mapping[str, str]
    places: Mapping[str, str] = field(default_factory=dict)
    """Of a script: what the lines say at which memory is decided, by kind."""
    widened: Mapping[str, int] = field(default_factory=dict)
    """Bytes that a line converts to a wider type in a step, by what it says."""
    digest: str = field(init=False)
    """Of everything else."""

    def __post_init__(self) -> None:
        if self.schema_version != SCHEMA_VERSION:
            raise ValueError(f"schema_version is {self.schema_version}, not {SCHEMA_VERSION}")
        whole = (self.job, self.configuration, self.figures, self.phase_of_peak, self.standing, self.verdict)
        digest = hashlib.sha256(canonical([*whole, self.versions, self.places, self.widened])).hexdigest()
        object.__setattr__(self, "digest", f"sha256:{digest}")


OTHERS = "others"


def baseline_to_json(baseline: Baseline) -> str:
    """Sorted keys, one line per figure, ASCII only, with a final newline."""
    return json.dumps(plain(baseline), indent=2, sort_keys=True, allow_nan=False) + "\n"


def baseline_from_json(text: str, where: str, name: str) -> Baseline:
    """What `baseline_to_json` wrote for the job `name`. InputError in one line, with file and line, for anything else.

    Torn by a merge conflict, of another schema, cut off, edited by hand, or of another job.
    """
    again = f"make it again with `plan check --update {name}`"
    torn = _CONFLICT.search(text)
    if torn is not None:
        line = text.count("\n", 0, torn.start()) + 1
        raise InputError(f"{where}:{line}: torn by a merge conflict: {again}")
    try:
        json.loads(text, parse_int=len, parse_float=len)  # for the line of what is cut off
        value = json_value(text)
    except json.JSONDecodeError as problem:
        raise InputError(f"{where}:{problem.lineno}: not complete JSON ({problem.msg}): {again}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{where}:1: not the JSON of a baseline: {again}") from None
    line = json_line(text, "document") or 1
    if not isinstance(value, dict) or value.get("document") != "check-baseline":
        raise InputError(f"{where}:{line}: not a baseline of `plan check`: {again}")
    if value.get("schema_version") != SCHEMA_VERSION:
        line = json_line(text, "schema_version") or 1
        version = str(value.get("schema_version"))[:20]
        raise InputError(f"{where}:{line}: schema_version is {version}, this version reads {SCHEMA_VERSION}: {again}")
    baseline = _decoded(text, where, again)
    if baseline.job != name:
        raise InputError(f"{where}:{json_line(text, 'job') or 1}: the baseline of {baseline.job!r:.60}: {again}")
    return baseline


def _decoded(text: str, where: str, again: str) -> Baseline:
    try:
        return decode(Baseline, load_object(text, where), where)
    except InputError as problem:
        said = str(problem).removeprefix(f"{where}: ").removesuffix(": make the plan again")
        key = re.match(r"(?:it was edited by hand: )?([\w.]+)", said)
        line = json_line(text, key[1].rpartition(".")[2]) if key else None
        raise InputError(f"{where}:{line or 1}: {said}: {again}") from None
