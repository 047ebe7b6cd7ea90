"""A job document as it is written: TOML, or plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpu_plan.planner.toml_text import toml_comment, toml_string

Value = str | int | float | bool
Table = dict[str, Value | list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One job of another tool."""

    where: str
    """The file that it was read from."""
    tool: str
    name: str
    prompt_len: int
    completion_len: int
    models: Mapping[str, Table]
    phases: Sequence[Table]
    gpus: int | None
    """Devices that the document is about; None where the file says none."""
    global_batch: int | None = None
    """Samples of an update on all of them."""
    expandable_segments: bool = False
    """Whether segments of CUDA's allocator grow."""
    padding_removed: bool = False
    """Whether passes hold the samples' own tokens alone."""
    notes: tuple[str, ...] = ()
    """What is planned otherwise than the tool does it."""
    not_read: tuple[str, ...] = ()

    @property
    def _switches(self) -> list[str]:
        """Keys of the whole job that are true."""
        said = {"padding_removed": self.padding_removed, "expandable_segments": self.expandable_segments}
        return [name for name, on in said.items() if on]

    def table(self) -> dict[str, object]:
        """The document as values."""
        return {
            "name": self.name,
            "prompt_len": self.prompt_len,
            "completion_len": self.completion_len,
            **dict.fromkeys(self._switches, True),
            "models": {role: dict(model) for role, model in self.models.items()},
            "phases": [dict(phase) for phase in self.phases],
        }

    def command(self, file: str, gpu: str | None) -> str:
        """What plans it."""
        spec = f"{self.gpus or 'N'}x{gpu or 'GPU'}"
        batch = "" if self.global_batch is None else f" --global-batch {self.global_batch}"
        return f"plan {file} --gpus {spec}{batch}"

    def toml(self, gpu: str | None) -> str:
        """The document as a file."""
        said = [f"{self.tool}, from {self.where}: {self.command('JOB.toml', gpu)}", *self.notes]
        if self.not_read:
            said.append(f"not read: {', '.join(self.not_read)}")
        lines = [toml_comment(one) for one in said]
        lines += [f"name = {toml_string(self.name)}"]
        lines += [f"prompt_len = {self.prompt_len}", f"completion_len = {self.completion_len}"]
        lines += [f"{name} = true" for name in self._switches]
        for role, model in self.models.items():
            lines += ["", f"[models.{role}]", *_pairs(model)]
        for phase in self.phases:
            lines += ["", "[[phases]]", *_pairs(phase)]
        return "\n".join(lines) + "\n"


def _pairs(table: Table) -> list[str]:
    return [f"{key} = {_value(value)}" for key, value in table.items()]


def _value(value: Value | list[str]) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(toml_string(one) for one in value) + "]"
    return toml_string(value) if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)


Cut = Mapping[str, int]
"""How much a pass takes: `micro_batch`, or `max_tokens` with the `samples` that are cut by them."""


def phase(name: str, does: str, models: list[str], cut: Cut | int | None = None) -> Table:
    """One phase; a number is its micro batch."""
    found: Table = {"name": name, "does": does, "models": models}
    return {**found, **({} if cut is None else {"micro_batch": cut} if isinstance(cut, int) else cut)}
