"""A script of unsloth's, whose import needs a GPU: the options of `plan` that say what its calls say. Pure.

`FastLanguageModel.from_pretrained(model_name, max_seq_length, load_in_4bit)` and `get_peft_model(r, target_modules,
use_gradient_checkpointing)` are read with constants, and names that the module sets to constants; defaults are those of
unsloth/models/loader.py and llama.py.
"""

import ast
import shlex
from collections.abc import Mapping
from typing import Any

from gpu_plan.planner.workload.optimizers.registry import by_word

_CLASSES = ("FastLanguageModel", "FastModel", "FastVisionModel")
_TRAINING = {"per_device_train_batch_size": "--micro-batch", "gradient_accumulation_steps": "--grad-accum"}
_LENGTH, _RANK = 2048, 16


def in_place_of(text: str) -> str | None:
    """`plan MODEL --stack unsloth ...` for the script's text; None where its model is not written there."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    constants = _constants(tree)
    loaded = _call(tree, constants, "from_pretrained")
    model = loaded.get("model_name", loaded.get(0))
    if not isinstance(model, str) or not model:
        return None
    words = [model, "--stack", "unsloth", *_adapters(tree, constants, loaded)]
    words += ["--seq-len", str(loaded.get("max_seq_length", _LENGTH))]
    for arguments in _training(tree, constants):
        for key, option in _TRAINING.items():
            if isinstance(arguments.get(key), int):
                words += [option, str(arguments[key])]
        chosen = by_word(str(arguments.get("optim", "")))
        if chosen is not None:
            words += ["--optimizer", chosen.name]
    return "plan " + " ".join(shlex.quote(word) for word in words)


def _adapters(tree: ast.AST, constants: Mapping[str, Any], loaded: Mapping[Any, Any]) -> list[str]:
    if loaded.get("full_finetuning") is True:
        return ["--peft", "none"]
    adapted = _call(tree, constants, "get_peft_model")
    four_bit = loaded.get("load_in_4bit", True) is True
    words = ["--peft", "qlora" if four_bit else "lora", "--lora-rank", str(adapted.get("r", _RANK))]
    targets = adapted.get("target_modules")
    if isinstance(targets, list) and targets and all(isinstance(target, str) for target in targets):
        words += ["--lora-targets", ",".join(targets)]
    checkpointing = adapted.get("use_gradient_checkpointing", "unsloth")
    return [*words, "--checkpointing", "full" if checkpointing else "none"]


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Names that the module sets once to a constant, as notebooks do at their top."""
    found: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = _value(node.value, found)
    return found


def _value(node: ast.expr, constants: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return None


def _call(tree: ast.AST, constants: Mapping[str, Any], method: str) -> dict[Any, Any]:
    """Arguments of the first `FastLanguageModel.METHOD(...)`, by name or position."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != method:
            continue
        if isinstance(node.func.value, ast.Name) and node.func.value.id in _CLASSES:
            return _arguments(node, constants)
    return {}


def _training(tree: ast.AST, constants: Mapping[str, Any]) -> list[dict[Any, Any]]:
    """Arguments of SFTConfig and TrainingArguments."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in _CONFIGS]
    return [_arguments(call, constants) for call in named[:1]]


_CONFIGS = ("SFTConfig", "TrainingArguments", "UnslothTrainingArguments")


def _arguments(call: ast.Call, constants: Mapping[str, Any]) -> dict[Any, Any]:
    found: dict[Any, Any] = {index: _value(node, constants) for index, node in enumerate(call.args)}
    found.update({word.arg: _value(word.value, constants) for word in call.keywords if word.arg})
    return {key: value for key, value in found.items() if value is not None}
