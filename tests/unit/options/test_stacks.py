"""Stacks: each is data, whole, and what it does not run is one line."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.model.spec import ModelSpec, ParameterSpec
from gpu_plan.planner.options.parser import STACKS
from gpu_plan.planner.options.settings import SETTINGS
from gpu_plan.planner.options.training.adapters import packs_experts
from gpu_plan.planner.options.training.reading import read_given
from gpu_plan.planner.search.training.notes.experts import unpacked_experts
from gpu_plan.planner.search.training.notes.stack import stack_notes
from gpu_plan.planner.strategy.base import Strategy, autocast_regime
from gpu_plan.planner.strategy.kinds.fsdp import FullyShardedDataParallel
from gpu_plan.planner.strategy.kinds.fsdp1 import FullyShardedDataParallel1
from gpu_plan.planner.strategy.known import known_traits
from gpu_plan.planner.trace.static import static_trace
from gpu_plan.planner.workload import stacks
from gpu_plan.planner.workload.adapters import Peft
from gpu_plan.planner.workload.optimizers.registry import Optimizer
from gpu_plan.planner.workload.precisions import Precision
from gpu_plan.planner.workload.stacks.registry import ABOUT, Stack, part_of, stack_document
from gpu_plan.planner.workload.training import Workload
from tests.support.live_bytes import at_load
from tests.support.rank_contexts import small_context

MIXED = Precision("bf16-mixed")


def test_every_stack_has_its_file_and_every_file_its_stack() -> None:
    files = (Path(stacks.__file__).parent / "facts").glob("*.toml")
    assert {path.stem for path in files} == set(Stack)
    assert all(name in STACKS for name in Stack)


@pytest.mark.parametrize("strategy", [None, "fsdp", "fsdp_ep"])
def test_experts_that_a_stack_spreads_by_itself_are_one_line(strategy: str | None) -> None:
    """torchtitan 0.2.2's transformers backend: "Missing TP/PP/EP supports for MoE"."""
    words = {"stack": "torchtitan", "ep": "2"} | ({"strategy": strategy} if strategy else {})
    with pytest.raises(UsageError, match=r"--stack torchtitan --ep 2: torchtitan .* its own models"):
        read_given(words, {})
    assert read_given({"stack": "torchtitan", "ep": "1"}, {}).expert_parallel == 1


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
        ({"stack": "litgpt", "peft": "qlora", "precision": "bf16-mixed"}, "without mixed precision: use bf16 or fp32"),
        ({"stack": "llamafactory"}, "Did you mean llama-factory"),
    ],
)
def test_what_a_stack_does_not_run_is_one_line(words: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError) as told:
        read_given(words, [])
    assert said in str(told.value)
    assert "\n" not in str(told.value)


def spec_of(*rows: tuple[str, tuple[int, ...], str, bool]) -> ModelSpec:
    """A quantised model: name, shape, dtype and whether it is trained, of each parameter."""
    parameters = tuple(ParameterSpec(name=n, shape=s, dtype=d, trainable=t) for n, s, d, t in rows)
    return ModelSpec(
        id="tiny", class_name="TinyForCausalLM", config_class=None, model_type=None, kind="module",
        parameters=parameters, num_parameters=880, trainable_parameters=16, max_positions=None, vocab_size=None,
        hidden_size=8, adapted=("q",), has_sequence=True, can_checkpoint=True,
    )  # fmt: skip


EMBEDDING = ("embed_tokens.weight", (64, 8), "bfloat16", False)
PACKED = ("q.base_layer.weight", (4096, 1), "uint8", False)
ADAPTER = ("q.lora_A.default.weight", (4, 8), "float32", True)
EXPERTS = ("layers.0.mlp.experts.gate_up_proj", (8, 1024, 1024), "bfloat16", False)


def parameter_bytes(strategy: Strategy, **changes: Any) -> int:
    """Bytes of weights that one of four ranks holds."""
    regime = strategy.regime(MIXED, Stack.TRL, Peft("qlora"))
    trace = static_trace(spec_of(EMBEDDING, PACKED, ADAPTER), regime)
    base = {"precision": MIXED, "peft": Peft("qlora"), "stack": Stack.TRL, "world_size": 4}
    return at_load(strategy.rank(small_context(trace, **(base | changes))).stream)


def test_packed_weights_are_sharded_as_floats_and_whole_as_integers() -> None:
    sharded, whole = FullyShardedDataParallel(), (("quant.storage", "uint8"),)
    quarter = 64 * 8 * 2 // 4 + 4 * 8 * 2 // 4
    assert parameter_bytes(sharded) == quarter + 4096 // 4
    assert parameter_bytes(sharded, settings=whole) == quarter + 4096


def test_a_bound_without_a_trace_flattens_nothing_whole() -> None:
    """Of a 70B it said 89.5 GiB a rank where 18.0 stand: all parameters as one unit, moved and flattened at once."""
    assert parameter_bytes(FullyShardedDataParallel1()) < (64 * 8 * 2 + 4096) // 4 + 256


def workload(stack: Stack, **changes: Any) -> Workload:
    return Workload(precision=MIXED, stack=stack, peft=Peft("qlora"), **changes)


def test_experts_that_are_not_packed_are_the_headline() -> None:
    spec = spec_of(EMBEDDING, PACKED, ADAPTER, EXPERTS)
    wide, narrow = (unpacked_experts(spec, workload(stack)) or "" for stack in (Stack.PEFT, Stack.TRL))
    assert "NOT quantised" in wide
    assert "stay in float32" in wide
    assert "prepare_model_for_kbit_training" in wide
    assert "stay in bfloat16" in narrow
    assert "quant.experts=true" in narrow
    assert "prepare_model_for_kbit_training" not in narrow
    assert unpacked_experts(spec_of(EMBEDDING, PACKED, ADAPTER), workload(Stack.PEFT)) is None
    assert unpacked_experts(spec, replace(workload(Stack.PEFT), peft=Peft("lora"))) is None


def test_only_what_packs_experts_by_itself_packs_them_unasked() -> None:
    assert [stack for stack in Stack if packs_experts(stack, {})] == [Stack.UNSLOTH]
    assert packs_experts(Stack.TRL, {"quant.experts": "true"})
    assert not packs_experts(Stack.UNSLOTH, {"quant.experts": "false"})


def test_the_line_about_a_stack_says_what_it_is_and_what_is_not_followed() -> None:
    (trl,) = stack_notes(workload(Stack.TRL, loss="trl-1.16"))
    assert "trl 1.16.0" in trl.text
    assert "never called" in trl.text
    assert "tiles" in trl.text
    _, less = stack_notes(workload(Stack.UNSLOTH))
    assert less.basis == "assumed"
