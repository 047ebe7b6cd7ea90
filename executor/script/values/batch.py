"""How large a batch a script makes where nobody tells it, read from its syntax tree."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpu_plan.executor.script.loop import Loop, dotted
from gpu_plan.executor.script.option import ScriptOptions, keywords
from gpu_plan.executor.script.read import Script
from gpu_plan.executor.script.values.literals import Literals

_TRAINER_MICRO_BATCH, _TRAINER_STEPS = 8, 1
"""transformers training_args.py: TrainingArguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnBatch:
    """Values of the script itself; None where its text does not tell."""

    micro_batch: int | None = None
    accumulation: int | None = None


def batch_of(script: Script, loop: Loop, options: ScriptOptions, words: Sequence[str]) -> OwnBatch:
    """What the script runs with; `words` are all words after it."""
    literals = Literals(script.tree, options, words)
    calls = sorted((node for node in ast.walk(script.tree) if isinstance(node, ast.Call)), key=lambda call: call.lineno)
    if loop == "trainer":
        return _of_arguments(calls, options, literals)
    return OwnBatch(micro_batch=_of_loader(calls, literals), accumulation=_steps(script.tree, calls, literals))


def _named(calls: Sequence[ast.Call], *names: str) -> Iterator[ast.Call]:
    return (call for call in calls if dotted(call.func).rpartition(".")[2].endswith(names))


def _of_arguments(calls: Sequence[ast.Call], options: ScriptOptions, literals: Literals) -> OwnBatch:
    """Of TrainingArguments that the script makes itself."""
    made = next(_named(calls, "TrainingArguments", "SFTConfig"), None)
    if made is None or options.training_arguments is not None or any(word.arg is None for word in made.keywords):
        return OwnBatch()
    given = keywords(made)

    def value(name: str, default: int) -> int | None:
        return literals.whole(given[name]) if name in given else default

    return OwnBatch(
        micro_batch=value("per_device_train_batch_size", _TRAINER_MICRO_BATCH),
        accumulation=value("gradient_accumulation_steps", _TRAINER_STEPS),
    )


def _of_loader(calls: Sequence[ast.Call], literals: Literals) -> int | None:
    """Of the first DataLoader: training's, as scripts are written."""
    made = next(_named(calls, "DataLoader"), None)
    if made is None or "batch_sampler" in keywords(made):
        return None
    given = made.args[1] if len(made.args) > 1 else keywords(made).get("batch_size")
    return 1 if given is None and not made.keywords else literals.whole(given)


def _steps(tree: ast.Module, calls: Sequence[ast.Call], literals: Literals) -> int | None:
    """By a GradientAccumulationPlugin, an Accelerator with `accumulate()`, or `if (i + 1) % N == 0: optimizer.step()`;
    1 where the text has none of them."""
    plugin = next(_named(calls, "GradientAccumulationPlugin"), None)
    if plugin is not None:
        return literals.whole(plugin.args[0] if plugin.args else keywords(plugin).get("num_steps"))
    if next(iter(_named(calls, "accumulate")), None) is not None:
        made = next(_named(calls, "Accelerator"), None)
        given = None if made is None else keywords(made).get("gradient_accumulation_steps")
        return 1 if given is None else literals.whole(given)
    found = {literals.whole(node) for node in _every(tree)}
    return 1 if not found else found.pop() if len(found) == 1 else None


def _every(tree: ast.Module) -> Iterator[ast.expr]:
    """The N of each `if ... % N ...` that decides about an optimizer's step."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.If) or not any(
            _steps_optimizer(inner) for part in node.body for inner in ast.walk(part)
        ):
            continue
        for inner in ast.walk(node.test):
            if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mod):
                yield inner.right


def _steps_optimizer(node: ast.AST) -> bool:
    name = dotted(node.func) if isinstance(node, ast.Call) else ""
    return name.endswith(".step") and "optim" in name.lower()
