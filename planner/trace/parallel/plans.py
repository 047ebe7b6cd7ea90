"""How transformers' classes say that they are split over ranks, read from their source without importing it.

transformers 5.23 models/*/configuration_*.py: base_model_tp_plan and base_model_ep_plan map modules and parameters,
`*` for a layer's number, to the names of styles.
"""

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.plain.values import dataclass

TENSOR, EXPERT = "base_model_tp_plan", "base_model_ep_plan"
DISPATCHES = "ep_dispatch_experts"
"""Style of experts to which tokens are handed over."""
_HEADS = ("num_attention_heads", "num_key_value_heads")
_EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts")
_CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k")
_ROWS = ("rowwise", "rowwise_rep", "rowwise_split_input")
"""Styles whose module puts out sums over the ranks."""
_COLUMNS = ("colwise", "packed_colwise")
"""Styles whose module's input has a gradient that is summed over the ranks."""
_EXPERTS = "moe_tp_experts"
"""Sums what it puts out, and the gradient of what it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Elements of one token that ranks of a group sum, one number for each all-reduce."""

    forward: tuple[int, ...] = ()
    backward: tuple[int, ...] = ()


def parallel_plan(model_type: str | None, kind: str) -> Mapping[str, str] | None:
    """What the classes of a model type say for `TENSOR` or `EXPERT`; None where they say nothing, or where transformers
    is not installed."""
    return _plans(model_type).get(kind) if model_type else None


@cache
def _plans(model_type: str) -> Mapping[str, Mapping[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for tree in _sources(model_type):
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                if name in (TENSOR, EXPERT) and isinstance(node.value, ast.Dict):
                    found.setdefault(name, {}).update(_literal(node.value))
    return found


def _literal(node: ast.expr) -> dict[str, str]:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return {}
    return {str(key): str(style) for key, style in value.items()}


def _sources(model_type: str) -> Iterator[ast.Module]:
    package = find_spec("transformers")
    if package is None or package.origin is None or not re.fullmatch(r"[A-Za-z0-9_.-]+", model_type):
        return
    folder = Path(package.origin).parent / "models" / model_type.replace("-", "_")
    for path in sorted(folder.glob("configuration_*.py")):
        yield ast.parse(path.read_text(encoding="utf-8"))


def undivided(config: Mapping[str, Any], degree: int) -> str | None:
    """Heads of which so many ranks would get a part, as the models' own reshapes forbid; None where none."""
    counts = _counts(config, _HEADS)
    return next((f"{count} {_words(key)}" for key, count in counts.items() if count % degree), None)


def divides(config: Mapping[str, Any], degree: int) -> bool:
    """Whether so many ranks get whole heads."""
    return undivided(config, degree) is None


def undivided_experts(config: Mapping[str, Any], ranks: int) -> str | None:
    """Experts of which so many ranks would get a part; None where none, or where the config does not say how many."""
    counts = _counts(config, _EXPERT_COUNTS)
    return next((f"{count} experts a layer" for count in counts.values() if count <= 0 or count % ranks), None)


def divides_experts(config: Mapping[str, Any], ranks: int) -> bool:
    """Whether so many ranks get whole experts, of a config that says how many a layer has."""
    return bool(_counts(config, _EXPERT_COUNTS)) and undivided_experts(config, ranks) is None


def _counts(config: Mapping[str, Any], keys: Sequence[str]) -> dict[str, int]:
    text = config.get("text_config")
    table = text if isinstance(text, Mapping) else config
    return {key: table[key] for key in keys if isinstance(table.get(key), int)}


def _words(key: str) -> str:
    """`num_key_value_heads` for people."""
    return "key-value heads" if "key_value" in key else "attention heads"


def dispatching(spec: ModelSpec, plan: Mapping[str, str]) -> set[str]:
    """Modules that hold experts to which tokens are handed over."""
    shapes = {parameter.name: parameter.shape for parameter in spec.parameters}
    return {owner for rule, style in plan.items() if style == DISPATCHES for owner in _owners(rule, shapes)}


def handed_over(spec: ModelSpec, config: Mapping[str, Any], plan: Mapping[str, str]) -> tuple[int, int]:
    """Layers whose experts tokens are handed over to, and elements of one token that a layer sends each time: 0 where
    the config does not say how many experts a token chooses.

    transformers 5.23 distributed/expert_parallel.py: AllToAllEP sends a row for each expert that a token has chosen,
    receives one for each, and does both again in backward.
    """
    text = config.get("text_config")
    table = text if isinstance(text, Mapping) else config
    chosen = next((table[key] for key in _CHOSEN if isinstance(table.get(key), int)), 0)
    return len(dispatching(spec, plan)), chosen * (spec.hidden_size or 0)


def sums_of(spec: ModelSpec, plan: Mapping[str, str]) -> Sums:
    """What a token takes in all-reduces under a plan for tensor parallel, at least: head and embedding left out.

    transformers 5.23 distributed/tensor_parallel.py: RowwiseParallel, ColwiseParallel, MoeExpertsParallel.
    """
    shapes = {parameter.name: parameter.shape for parameter in spec.parameters}
    experts = {name for name, style in plan.items() if style == _EXPERTS}
    forward: list[int] = []
    backward: list[int] = []
    for rule, style in plan.items():
        if rule.rpartition(".")[0] in experts:
            continue  # a parameter of experts, which have a rule of their own
        rows = [shapes[name] for name in _modules(rule, shapes)]
        if style in _ROWS:
            forward += [shape[0] for shape in rows]
        elif style in _COLUMNS:
            backward += [shape[1] for shape in rows]
        elif style == _EXPERTS:
            found = len(_owners(rule, shapes))
            forward += [spec.hidden_size or 0] * found
            backward += [spec.hidden_size or 0] * found
    return Sums(forward=tuple(forward), backward=tuple(backward))


def replicated(
    modules: Sequence[str], blocks: Collection[str], final_norm: str | None, plan: Mapping[str, str]
) -> set[str]:
    """Of the modules, those that every rank computes on all of each token: blocks, in which residuals are added, what
    stands in a block beside everything that the plan names, such as its norms, and the final norm."""
    rules = re.compile("|".join(_pattern(rule) for rule in plan))
    named = [name for name in modules if rules.fullmatch(name)]
    touched = {name[:place] for name in named for place in _ends(name)}
    beside = {name for name in modules if name.rpartition(".")[0] in blocks and name not in touched}
    return {*(set(blocks) & set(modules)), *beside, *([final_norm] if final_norm else [])}


def _ends(name: str) -> Iterator[int]:
    """Where a module's name and those of the modules around it end."""
    yield from (place for place, letter in enumerate(name) if letter == ".")
    yield len(name)


def _pattern(rule: str) -> str:
    return r"(?:^|.*\.)" + re.escape(rule).replace(r"\*", r"\d+")


def _modules(rule: str, shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Weights, of two dimensions, of the linear layers that a rule names."""
    wanted = re.compile(_pattern(rule) + r"\.weight")
    return [name for name, shape in shapes.items() if len(shape) == 2 and wanted.fullmatch(name)]


def _owners(rule: str, shapes: Mapping[str, tuple[int, ...]]) -> set[str]:
    """Modules that a rule names and that have parameters of their own."""
    wanted = re.compile(f"({_pattern(rule)})" + r"\.[^.]+")
    return {match.group(1) for match in map(wanted.fullmatch, shapes) if match}
