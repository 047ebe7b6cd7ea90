"""Outside their own files nothing tells optimizers, precisions and adapters apart by name."""

import ast
from collections.abc import Iterator

from gpu_plan.planner.workload.adapters import NO_ADAPTERS, Peft
from gpu_plan.planner.workload.optimizers.registry import Optimizer
from gpu_plan.planner.workload.precisions import PRECISIONS
from tests.support.own_sources import quoting

OWN = ("planner/workload/precisions.py", "planner/workload/adapters.py", "planner/workload/optimizers/")

NAMES = frozenset({*Optimizer.names(), *PRECISIONS, *Peft.names()} - {NO_ADAPTERS})
"""`none` is a word for much else as well: what `no adapters` means is read as a trait, `adapts`."""

ALLOWED = {
    "planner/capture/recipes/parts.py": frozenset({"bf16", "fp16"}),  # arguments of TRL's configs
    # Words of other tools that happen to be spelt like ours.
    # Flags of TrainingArguments, names of types, and transformers' word for an optimizer.
    "planner/from_config/formats/shared.py": {"bf16", "fp16", "fp32", "sgd"},
    "planner/from_config/formats/trainers/axolotl.py": {"bf16", "fp16"},  # its keys
    "planner/from_config/formats/trainers/llamafactory.py": {"bf16", "fp16"},  # its keys
    "planner/from_config/formats/trainers/ms_swift.py": {"bf16", "fp16"},  # accelerate's words
    "planner/from_config/formats/trainers/oumi.py": frozenset({"fp16", "bf16"}),
    "planner/from_config/formats/trainers/trainer.py": {
        "bf16",
        "fp16",
        "adafactor",
        "lora",
        "qlora",
    },  # accelerate's word for what SFTConfig defaults to
    "planner/from_config/formats/trainers/unsloth.py": {"bf16", "lora"},  # accelerate's word, its own
    "planner/from_config/formats/loops/litgpt.py": {"bf16", "fp16", "bf16-mixed"},  # accelerate's words, Lightning's
    "planner/from_config/formats/loops/llamafactory_v1.py": {"bf16", "lora"},  # accelerate's word, a plugin
    "planner/from_config/formats/loops/open_instruct.py": {"bf16"},  # accelerate's word
    "planner/from_config/formats/loops/torchtitan.py": {"bf16"},  # accelerate's word
    "planner/from_config/formats/loops/torchtune.py": {"bf16", "fp32"},  # its types
    "planner/from_config/documents/openrlhf.py": {"bf16"},  # its type
    "planner/from_config/documents/verl.py": {"bf16", "fp32"},  # its types
    "planner/from_config/documents/llamafactory.py": {"bf16", "lora"},  # its key, a plugin
    "planner/from_config/documents/openrlhf_older.py": {"bf16"},  # its switch
    "planner/from_config/documents/easy_r1.py": {"fp32", "adamw"},  # its types, its word
    "planner/from_config/shell/launched.py": {"bf16"},  # accelerate's word
    "planner/capture/diffusion/train.py": {"bf16", "fp16"},  # accelerate's words
    "planner/megatron/arguments.py": {"bf16", "fp16", "fp32"},  # types of Megatron-LM's options
    "planner/from_config/formats/deepspeed.py": {"bf16", "fp16", "adamw"},  # sections, a type
    "executor/launch/deepspeed/config.py": {"bf16", "fp16"},  # DeepSpeed's sections
    "executor/launch/script_arguments.py": {"bf16", "fp16"},  # flags of TrainingArguments
    "executor/launch/not_applied.py": {"bf16", "fp16"},  # names that stand in a script
    "executor/script/options_dataclass.py": {"bf16", "fp16"},  # flags of TrainingArguments
    "executor/doctor/trial/training.py": {"bf16", "fp16"},  # accelerate's mixed_precision
    "executor/runner/observe/actual.py": {"bf16", "fp16"},  # accelerate's mixed_precision, as a rank sees it
    "executor/doctor/flow/make.py": {"lora"},  # a variable's name
    "src/gpu_plan/commands/gpus.py": {"bf16", "fp16"},  # columns: rates of a GPU
    "planner/capture/deepspeed/config.py": {"bf16", "fp16", "adamw"},  # sections, a type
    "planner/capture/deepspeed/optimizers.py": {"adamw", "sgd"},  # its types
    "planner/capture/watch/unsloth.py": {"lora", "qlora"},  # a command line to be typed, for calls of its own
    # Values of another option, --kv-dtype.
    "planner/workload/generation.py": {"fp32", "bf16", "fp16"},
}


def _constants(tree: ast.Module) -> Iterator[str]:
    """Every string that is no docstring."""
    prose = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in prose:
            yield node.value


def named() -> dict[str, set[str]]:
    """Names of kinds by the file that writes them."""
    found: dict[str, set[str]] = {}
    for where, tree in quoting(NAMES):
        words = set() if where.startswith(OWN) else NAMES & set(_constants(tree))
        if words:
            found[where] = words
    return found


def test_only_other_tools_words_are_spelt_like_a_kind() -> None:
    assert named() == ALLOWED
