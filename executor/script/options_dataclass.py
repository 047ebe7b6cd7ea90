"""Options of HfArgumentParser: fields of the script's own dataclasses, and the library's training arguments."""

import ast
from collections.abc import Mapping

from gpu_plan.executor.script.loop import dotted
from gpu_plan.executor.script.option import Option, constant, keywords

_HF_PARSERS = frozenset({"HfArgumentParser", "TrlParser", "H4ArgumentParser"})


def filled_classes(tree: ast.Module) -> list[str]:
    """Names of the dataclasses that a Hugging Face argument parser fills."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in _HF_PARSERS:
            given = keywords(node)
            first = node.args[0] if node.args else given.get("dataclass_types")
            parts = first.elts if isinstance(first, (ast.Tuple, ast.List)) else [first] if first is not None else []
            found += [name for part in parts if (name := dotted(part))]
    return found


def of_dataclass(node: ast.ClassDef | None, own: Mapping[str, ast.ClassDef]) -> list[Option]:
    """The fields of a dataclass of the script's own, and of those that it extends."""
    if node is None:
        return []
    found: list[Option] = []
    for base in node.bases:
        found += of_dataclass(own.get(dotted(base)), {name: c for name, c in own.items() if c is not node})
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found.append(_field(statement, statement.target.id))
    return found


def _field(statement: ast.AnnAssign, name: str) -> Option:
    metadata: dict[str, object] = {}
    default = constant(statement.value)
    if isinstance(statement.value, ast.Call):
        given = keywords(statement.value)
        value, default = constant(given.get("metadata")), constant(given.get("default"))
        metadata = value if isinstance(value, dict) else {}
    boolean = "bool" in ast.unparse(statement.annotation).replace("Optional", "").replace("None", "")
    many = "ist[" in ast.unparse(statement.annotation)
    spellings = dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}"))
    text = metadata.get("help")
    return Option(
        name=f"--{name}",
        spellings=tuple(spellings),
        takes="boolean" if boolean else "many" if many else "value",
        help=text if isinstance(text, str) else "",
        default=default,
        line=statement.lineno,
    )


_ARGUMENT_PACKAGES = frozenset({"transformers", "trl"})


def training_arguments(classes: list[str], own: Mapping[str, ast.ClassDef], imported: Mapping[str, str]) -> str | None:
    """The library class of training arguments among those that the command line fills, through own subclasses too."""
    for name in classes:
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            current = waiting.pop()
            if current in seen:
                continue
            seen.add(current)
            last = current.rpartition(".")[2]
            origin = imported.get(current.partition(".")[0], "").partition(".")[0]
            known = last.endswith("TrainingArguments") or (last.endswith("Config") and last != "ModelConfig")
            if origin in _ARGUMENT_PACKAGES and known:
                return last
            if current in own:
                waiting += [dotted(base) for base in own[current].bases]
    return None


_TRAINING_BOOLEANS = ("bf16", "fp16", "gradient_checkpointing", "use_cpu", "torch_compile", "use_liger_kernel")
_TRAINING_VALUES = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "gradient_checkpointing_kwargs",
    "optim",
    "resume_from_checkpoint",
    "accelerator_config",
    "max_grad_norm",
)


def of_training_arguments(library: str) -> list[Option]:
    """Of the options of TrainingArguments, those through which a plan speaks; TRL's cut sequences themselves."""
    values = _TRAINING_VALUES if library.endswith("TrainingArguments") else (*_TRAINING_VALUES, "max_length")
    named = [(name, "boolean") for name in _TRAINING_BOOLEANS] + [(name, "value") for name in values]
    return [
        Option(
            name=f"--{name}",
            spellings=tuple(dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}"))),
            takes="boolean" if takes == "boolean" else "value",
        )
        for name, takes in named
    ]
