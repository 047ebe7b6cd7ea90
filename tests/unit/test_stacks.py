"""Stacks: each is data, whole, and what it does not run is one line."""

from pathlib import Path

import pytest

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.options.parser import STACKS
from gpu_plan.planner.options.settings import SETTINGS
from gpu_plan.planner.options.training import read_given
from gpu_plan.planner.strategy.base import autocast_regime
from gpu_plan.planner.strategy.known import known_traits
from gpu_plan.planner.workload import stacks
from gpu_plan.planner.workload.adapters import Peft
from gpu_plan.planner.workload.optimizers.registry import Optimizer
from gpu_plan.planner.workload.precisions import Precision
from gpu_plan.planner.workload.stacks.registry import ABOUT, Stack, part_of, stack_document

MIXED = Precision("bf16-mixed")


def test_every_stack_has_its_file_and_every_file_its_stack() -> None:
    files = (Path(stacks.__file__).parent / "facts").glob("*.toml")
    assert {path.stem for path in files} == set(Stack)
    assert all(name in STACKS for name in Stack)


@pytest.mark.parametrize("stack", Stack)
def test_a_stack_tells_everything_with_its_source(stack: Stack) -> None:
    traits = stack.traits
    assert sorted(fact.about for fact in traits.facts) == sorted(ABOUT)
    assert all((fact.text and "/" in fact.source) or fact.source.endswith((".py", ".yaml")) for fact in traits.facts)
    assert traits.commit or traits.checked == "run", "what is only read is read in a commit"
    assert set(traits.strategies) <= {name for name in traits.strategies if known_traits(name) is not None}
    assert not traits.optimizer or traits.optimizer in Optimizer.names()
    assert set(traits.precisions) <= set(Precision.names())
    assert set(traits.adapters) <= set(Peft.names())
    assert not traits.loss or traits.loss in SETTINGS["loss.variant"].choices
    assert {fact["about"] for fact in stack_document(stack)["facts"]} == set(ABOUT)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("stack", "weights", "adapters", "upcast"),
    [
        ("peft", "float32", "float32", ()),
        ("trl", "bfloat16", "bfloat16", ()),
        ("llama-factory", "bfloat16", "float32", ()),
        ("axolotl", "bfloat16", "float32", ("others",)),
        ("unsloth", "bfloat16", "float32", ()),
    ],
)
def test_a_quantised_base_is_held_as_the_stack_holds_it(
    stack: str, weights: str, adapters: str, upcast: tuple[str, ...]
) -> None:
    regime = autocast_regime(MIXED, Stack(stack), Peft("qlora"))
    assert (regime.weights, regime.trained, regime.upcast) == (weights, adapters, upcast)


def test_a_kind_that_is_kept_wide_is_wide_alone() -> None:
    regime = autocast_regime(MIXED, Stack.AXOLOTL, Peft("qlora"))

    def held(name: str, dims: int) -> str:
        return regime.dtype_of("bfloat16", trainable=False, name=name, dims=dims)

    assert held("model.layers.0.mlp.experts.gate_up_proj", 3) == "float32"
    assert held("model.layers.0.input_layernorm.weight", 1) == "bfloat16"
    assert held("model.embed_tokens.weight", 2) == held("lm_head.weight", 2) == "bfloat16"
    assert part_of("transformer.h.0.ln_1.weight", 1) == "norms"
    assert part_of("model.layers.0.mlp.gate.weight", 2) == "others"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"stack": "torchtune", "strategy": "zero3"}, "torchtune does not run it: use single, fsdp or hsdp"),
        ({"stack": "torchtitan", "strategy": "fsdp1"}, "torchtitan does not run it"),
        ({"stack": "unsloth", "strategy": "fsdp"}, "Unsloth does not run it: use single or ddp"),
        ({"stack": "torchtune", "precision": "bf16-mixed"}, "use bf16 or fp32"),
        ({"stack": "torchtitan", "peft": "qlora"}, "use --peft none or lora"),
        ({"stack": "peft"}, "needs adapters: use --peft lora or qlora"),
        ({"stack": "litgpt", "peft": "qlora", "strategy": "fsdp"}, "on one device alone"),
        ({"stack": "llamafactory"}, "Did you mean llama-factory"),
    ],
)
def test_what_a_stack_does_not_run_is_one_line(words: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError) as told:
        read_given(words, [])
    assert said in str(told.value)
    assert "\n" not in str(told.value)
