"""Options about adapters: what is read from them, and every combination that makes no sense."""

import pytest

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.model.adapter import Adapter
from gpu_plan.planner.model.spec import ModelSpec, ParameterSpec, built_parameters
from gpu_plan.planner.options.training.adapters import adapter_of
from gpu_plan.planner.options.training.reading import read_given
from gpu_plan.planner.options.training.workload import make_workload
from gpu_plan.planner.strategy.base import autocast_regime
from gpu_plan.planner.strategy.registry import STRATEGIES
from gpu_plan.planner.trace.static import static_trace
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Peft, Precision, Stack

H100 = parse_cluster("1xH100")


def adapter(words: dict[str, str], *settings: str) -> Adapter | None:
    return adapter_of(read_given(words, settings), H100)


def test_nothing_asked_for_is_no_adapter() -> None:
    assert adapter({}) is None
    assert adapter({"peft": "none"}) is None


def test_defaults_and_given_values() -> None:
    assert adapter({"peft": "lora"}) == Adapter(peft=Peft("lora"), rank=16)
    words = {"peft": "QLoRA", "lora-rank": "64", "lora-targets": " q_proj, v_proj,q_proj ", "precision": "fp32"}
    assert adapter(words, "lora.dropout=0.05", "quant.double=true") == Adapter(
        peft=Peft("qlora"),
        rank=64,
        targets=("q_proj", "v_proj"),
        dropout=0.05,
        double_quant=True,
        compute_dtype="float32",
    )


@pytest.mark.parametrize(
    ("words", "settings", "said"),
    [
        ({"peft": "lorra"}, (), "Did you mean lora"),
        ({"lora-rank": "8"}, (), "--lora-rank needs --peft"),
        ({"lora-targets": "q_proj", "peft": "none"}, (), "--lora-targets needs --peft"),
        ({}, ("lora.dropout=0.1",), "lora.dropout needs --peft"),
        ({"peft": "lora"}, ("quant.double=true",), "quant.double needs --peft qlora"),
        ({"peft": "lora", "lora-rank": "0"}, (), "--lora-rank '0'"),
        ({"peft": "lora", "lora-targets": " , "}, (), "names no module"),
        ({"peft": "lora", "lora-targets": "all-linear,q_proj"}, (), "give it alone"),
        ({"peft": "lora"}, ("lora.dropout=1",), "below 1"),
        ({"peft": "lora"}, ("lora.dropout=nan",), "below 1"),
        ({"peft": "qlora"}, ("quant.double=yes",), "true or false"),
        ({"peft": "qlora", "strategy": "fsdp1"}, ("quant.base=int8",), "cannot shard bitsandbytes' int8"),
    ],
)
def test_refused_in_one_line(words: dict[str, str], settings: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError, match=r"^[^\n]*$") as caught:
        adapter(words, *settings)
    assert said in str(caught.value)


def test_every_finer_value_is_part_of_the_cache_key() -> None:
    plain = Adapter(peft=Peft("qlora"))
    others = (
        Adapter(peft=Peft("lora")),
        Adapter(peft=Peft("qlora"), rank=8),
        Adapter(peft=Peft("qlora"), targets=("q_proj",)),
        Adapter(peft=Peft("qlora"), dropout=0.1),
        Adapter(peft=Peft("qlora"), double_quant=True),
        Adapter(peft=Peft("qlora"), compute_dtype="float16"),
    )
    assert len({adapter.key() for adapter in (plain, *others)}) == 7


def variant(regime: Regime) -> str:
    return StepVariant(
        regime=regime, checkpointing=Checkpointing.NONE, attention=Attention.SDPA, stack=Stack.PLAIN, seq_len=8
    ).key()


def test_regimes_differ_in_their_keys() -> None:
    mixed = [autocast_regime(Precision("bf16-mixed"), Stack.ACCELERATE, peft) for peft in map(Peft, Peft.names())]
    assert [(regime.weights, regime.trained, regime.autocast) for regime in mixed] == [
        ("float32", "float32", "bfloat16"),
        ("bfloat16", "float32", "bfloat16"),
        ("float32", "float32", "bfloat16"),
    ]
    bases = [variant(Regime(weights="bfloat16")), variant(Regime(weights="bfloat16", trainable_weights="float32"))]
    assert bases[0] != bases[1]


def tiny_spec() -> ModelSpec:
    """A frozen matrix, one in 4 bits, an adapter."""
    rows = (
        ("base_model.model.embed.weight", (100, 8), "float32", False),
        ("base_model.model.q.base_layer.weight", (32, 1), "uint8", False),
        ("base_model.model.q.lora_A.default.weight", (2, 8), "float32", True),
    )
    parameters = tuple(
        ParameterSpec(name=name, shape=shape, dtype=dtype, trainable=trainable)
        for name, shape, dtype, trainable in rows
    )
    return ModelSpec(
        id="tiny",
        class_name="Tiny",
        config_class=None,
        model_type=None,
        kind="module",
        parameters=parameters,
        num_parameters=880,
        trainable_parameters=16,
        max_positions=None,
        vocab_size=None,
        hidden_size=8,
        has_sequence=False,
        adapted=("q",),
    )


def test_parameters_stand_as_the_regime_has_them() -> None:
    trace = static_trace(tiny_spec(), autocast_regime(Precision("bf16-mixed"), Stack.ACCELERATE, Peft("lora")))
    assert [parameter.dtype for parameter in trace.parameters] == ["bfloat16", "uint8", "float32"]
    for strategy in STRATEGIES.values():
        regime = strategy.regime(Precision("bf16"), Stack.ACCELERATE, Peft("lora"))
        assert static_trace(tiny_spec(), regime).parameters[1].dtype == "uint8"


def test_names_without_adapters() -> None:
    assert built_parameters(tiny_spec()) == {"embed.weight": ((100, 8), "float32"), "q.weight": ((32, 1), "uint8")}


def test_the_workload_echoes_what_was_used() -> None:
    given = read_given({"peft": "lora"}, ())
    workload = make_workload(given, False, H100, tiny_spec())
    basis = dict(workload.basis)
    assert (workload.peft, workload.lora_rank, workload.lora_targets) == (Peft("lora"), 16, ("q",))
    assert (basis["peft"], basis["lora_rank"], basis["lora_targets"]) == ("given", "default", "default")
