"""Jobs that a repository seems to have: its training scripts, other tools' configurations, its models (I/O)."""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from gpu_plan.planner.capture.files import project_files
from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.foreign.as_json import json_value
from gpu_plan.planner.foreign.files import read_bytes
from gpu_plan.planner.from_config.convert import Converted, convert
from gpu_plan.planner.from_config.reading import Fetch
from gpu_plan.planner.toml_text import toml_comment, toml_string, toml_value

Read = Callable[[Path], Mapping[str, object]]
Fetching = Callable[[Path], Fetch]

_MAX_FILES = 2000
_MAX_BYTES = 2**19
_TESTS = ("tests", "test", "docs", "build", "dist", "notebooks")
_TRAINS = ("backward", "train", "fit")
_GPUS = "A100-40GB"
_OF_THE_SCRIPT = ("seq-len", "attention", "peft", "lora-rank", "lora-targets", "fused-loss", "stack")
"""What a script decides by itself, whatever a configuration beside it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One job, as it would be written down."""

    name: str
    values: Mapping[str, object]
    settings: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What a reader must know or decide."""


def propose(
    root: Path, taken: Mapping[str, object], gpus: str | None, read: Read, fetch: Fetching
) -> tuple[Proposal, ...]:
    """Jobs for what is found below `root`; `gpus` are the project's own.

    `taken`: the models of jobs that there are, by name; neither is proposed again.
    """
    scripts = list(_scripts(root))
    configs = list(_configs(root, read, fetch))
    spread = [config for config in configs if config.model is None]
    found = [_of_script(root, script, spread, scripts, gpus) for script in scripts]
    found += [_of_config(config, gpus) for config in configs if config.model is not None]
    found += [_of_model(root, folder, gpus) for folder in _models(root)]
    used = set(taken)
    named: list[Proposal] = []
    for proposal in found:
        name = proposal.name
        if name in used and any(name == other.name for other in named):
            name = next(
                f"{proposal.name}-{number}" for number in range(2, 1000) if f"{proposal.name}-{number}" not in used
            )
        if name not in used and proposal.values["model"] not in taken.values():
            used.add(name)
            named.append(replace(proposal, name=name))
    return tuple(named)


def to_toml(proposals: Iterable[Proposal], prefix: str) -> str:
    """The tables; `prefix` is what stands before `checks`: `tool.plan.`, or nothing in plan.toml."""
    return "\n".join(_table(proposal, prefix) for proposal in proposals)


def _table(proposal: Proposal, prefix: str) -> str:
    lines = [toml_comment(note) for note in proposal.notes]
    lines.append(f"[{prefix}checks.{proposal.name}]")
    lines += [f"{key} = {_text(value)}" for key, value in proposal.values.items()]
    if proposal.settings:
        inner = ", ".join(f"{toml_string(key)} = {_text(value)}" for key, value in proposal.settings.items())
        lines.append(f"set = {{ {inner} }}")
    return "\n".join(lines) + "\n"


def _text(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_string, value)) + "]"
    return toml_value(str(value))


# -- what is found -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Script:
    path: Path
    required: tuple[str, ...]
    """Options that it does not run without."""


def _scripts(root: Path) -> Iterator[_Script]:
    """Files that run by themselves and train: a main guard, and a call of backward, train or fit."""
    for path in islice(project_files(root, (".py",)), _MAX_FILES):
        if set(path.relative_to(root).parts[:-1]) & set(_TESTS) or path.stat().st_size > _MAX_BYTES:
            continue
        try:
            tree = ast.parse(read_bytes(path, _MAX_BYTES))
        except (SyntaxError, ValueError, OSError, RecursionError):
            continue
        if _has_main(tree) and _trains(tree):
            yield _Script(path=path, required=tuple(_required(tree)))


def _has_main(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.If) and "__main__" in ast.dump(node.test) for node in tree.body)


def _trains(tree: ast.Module) -> bool:
    """`loss.backward()`, `trainer.train()`, `trainer.fit(...)`; `model.train()` only switches dropout on."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _TRAINS:
            owner = node.func.value
            name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
            if node.func.attr == "backward" or "trainer" in name.lower():
                return True
    return False


def _required(tree: ast.Module) -> Iterator[str]:
    """Options of argparse that are `required=True`, and positional arguments."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr != "add_argument" or not node.args or not isinstance(node.args[0], ast.Constant):
            continue
        given = {key.arg: key.value for key in node.keywords}
        name = str(node.args[0].value)
        wanted = given.get("required")
        optional = name.startswith("-") or "default" in given or "nargs" in given
        if not optional or (isinstance(wanted, ast.Constant) and wanted.value is True):
            yield name


def _configs(root: Path, read: Read, fetch: Fetching) -> Iterator[Converted]:
    """Other tools' configurations that can be read; files of no known kind are passed over."""
    for path in islice(project_files(root, (".yaml", ".yml", ".json")), _MAX_FILES):
        if path.name == "config.json" or path.stat().st_size > _MAX_BYTES:
            continue
        relative = path.relative_to(root).as_posix()
        try:
            yield convert(read(path), relative, fetch(path))
        except PlanError:
            continue


def _models(root: Path) -> Iterator[Path]:
    for path in islice(project_files(root, ("config.json",)), _MAX_FILES):
        if path.name != "config.json":
            continue
        try:
            config = json_value(read_bytes(path, _MAX_BYTES), infinity=True)
        except (ValueError, OSError):
            continue
        if isinstance(config, dict) and isinstance(config.get("model_type"), str):
            yield path.parent


# -- what is made of it --------------------------------------------------------------------------------------


def _of_script(
    root: Path, script: _Script, spread: list[Converted], all_of: list[_Script], gpus: str | None
) -> Proposal:
    """A script, spread as the configuration says that lies nearest to it."""
    relative = script.path.relative_to(root)
    near = [one for one in spread if (root / one.path).parent == script.path.parent] or (
        spread if len(all_of) == 1 else []
    )
    config = near[0] if near else None
    values: dict[str, object] = {"model": relative.as_posix()}
    notes = [f"{relative.as_posix()}: a training script" + (f", spread as {config.path} says" if config else "")]
    if script.required:
        values["args"] = [word for name in script.required for word in ((name, "...") if name[:1] == "-" else ("...",))]
        notes.append(f"fill in what it does not run without: {', '.join(script.required)}")
    values["gpus"] = gpus or _gpus(config)
    options, settings = ({}, {}) if config is None else _options(config)
    values |= {key: value for key, value in options.items() if key not in _OF_THE_SCRIPT}
    # A script's own loader and loop say these.
    values = {key: value for key, value in values.items() if key not in ("micro-batch", "grad-accum", "global-batch")}
    return _proposal(relative.stem, values, settings, notes)


def _of_config(config: Converted, gpus: str | None) -> Proposal:
    options, settings = _options(config)
    values: dict[str, object] = {"model": config.model, "gpus": gpus or _gpus(config), **options}
    notes = [f"{config.path}: {config.title}"]
    notes += [f"planned otherwise: {line}" for line in config.approximated]
    return _proposal(Path(config.path).stem, values, settings, notes)


def _of_model(root: Path, folder: Path, gpus: str | None) -> Proposal:
    relative = folder.relative_to(root).as_posix()
    model = "config.json" if relative == "." else relative
    name = root.name if relative == "." else folder.name
    values: dict[str, object] = {"model": model, "gpus": gpus or _gpus(None)}
    return _proposal(name, values, {}, [f"{model}: a model by its config.json; name the job's strategy and batch"])


def _options(config: Converted) -> tuple[dict[str, object], dict[str, str]]:
    return (
        {said.option: said.value for said in config.options if not said.setting},
        {said.option: said.value for said in config.options if said.setting},
    )


def _gpus(config: Converted | None) -> str:
    if config is not None and config.gpus is not None:
        return config.gpus
    count = 1 if config is None else config.processes or 1
    nodes = 1 if config is None else config.nodes or 1
    return f"{nodes}x{count // nodes}x{_GPUS}" if nodes > 1 else f"{count}x{_GPUS}"


def _proposal(name: str, values: dict[str, object], settings: Mapping[str, str], notes: list[str]) -> Proposal:
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "job"
    if _GPUS in str(values["gpus"]):
        notes = [*notes, "gpus: no file says which; name those of the real job"]
    return Proposal(name=slug, values={**values, "budget": "fits"}, settings=settings, notes=tuple(notes))
