"""How rows are judged: by their own fields, or set aside in words; nothing that stands in a file ends the command."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.accuracy.__main__ import DATA, main
from benchmarks.accuracy.figures import Aside, spread, summary
from benchmarks.accuracy.kempnerforge.cases import ForgeCase
from benchmarks.accuracy.memory import cases
from benchmarks.accuracy.memory.cases import Estimator, case_of
from benchmarks.accuracy.models import Models
from benchmarks.accuracy.row import SetAside
from benchmarks.accuracy.score import Scorer
from benchmarks.accuracy.speed.cases import setup_of as speed_setup_of
from benchmarks.accuracy.torchtitan.cases import TitanCase
from benchmarks.accuracy.trainer.setup import Setup
from benchmarks.accuracy.trainer.strategies import regime_of, strategy_of
from benchmarks.accuracy.truth import Kind, read_truth
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.strategy.fsdp1 import rank
from gpu_plan.planner.strategy.fsdp1.runtime import ActionKind, UnitAction, unit_actions

Row = dict[str, Any]
TRUTHS = [read_truth(path) for path in DATA]
ROWS: list[tuple[Row, Kind]] = [
    (dict(row), kind) for truth in TRUTHS for row, kind in zip(truth.rows, truth.kinds, strict=True)
]
BY_ID = {row["id"]: row for row, _ in ROWS}
SINGLE, FLAT, LORA = "tm-fms-acceleration-0176", "tm-fms-acceleration-0135", "tm-fms-acceleration-0017"
QLORA, TITAN = "tm-fms-acceleration-0030", "tm-torchtitan-0048"
MODELS = Models()


def _setup(name: str, **changed: Any) -> Setup:
    case = case_of({**BY_ID[name], **changed}, MODELS)
    assert isinstance(case, Setup)
    return case


def _reason(name: str, **changed: Any) -> str:
    with pytest.raises(SetAside) as caught:
        case_of({**BY_ID[name], **changed}, MODELS)
    return str(caught.value)


# -- rules ----------------------------------------------------------------------------------------------------


def test_fsdp1_is_pure_where_no_flag_made_it_mixed() -> None:
    """Ten bytes per parameter at the step, not twenty."""
    assert str(_setup(FLAT).precision) == "bf16-mixed"
    types = {"basis": "implied: torch_dtype=bfloat16 and no bf16/fp16 flag; accelerate mixed_precision=no"}
    types |= {"compute": "bfloat16", "params": "bfloat16"}
    setup = _setup(FLAT, dtype=types)
    assert str(setup.precision) == "bf16"
    assert regime_of(setup, strategy_of(setup)).weights == "bfloat16"


def test_quantised_weights_are_charged_in_the_types_that_were_traced() -> None:
    one = {"count": 1, "memory_gb": 80, "model": "A100-80GB", "nodes": 1}
    own = _setup(QLORA, strategy="single", gpu=one, notes="framework_config: accelerated-peft-bnb")
    upcast = _setup(QLORA, strategy="single", gpu=one)
    assert regime_of(own, strategy_of(own)).weights == "bfloat16"
    assert regime_of(own, strategy_of(own)).trained == "float32"
    assert regime_of(upcast, strategy_of(upcast)).weights == "float32"


def test_old_checkpointing_is_known_by_the_version() -> None:
    assert _setup(FLAT).checkpoints_outside
    assert not _setup(FLAT, software="torch 2.7, transformers 4.52.1").checkpoints_outside


def test_nothing_is_gathered_ahead_under_old_checkpointing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Around the wrapped layer, forward runs without gradients first: no hook of a neighbour is there to prefetch."""
    sizes = {"num_hidden_layers": 3, "hidden_size": 64, "intermediate_size": 128, "vocab_size": 254}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    (tmp_path / "tiny.json").write_text(json.dumps(json.loads(_setup(FLAT).config) | sizes))
    found: list[list[UnitAction]] = []

    def kept(*arguments: Any, **options: Any) -> list[UnitAction]:
        found.append(unit_actions(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(rank, "unit_actions", kept)
    row = {**BY_ID[FLAT], "model": "tiny", "seq_len": 64, "notes": "", "fused_or_chunked_loss": "none"}
    for software in ("transformers 4.45.2", "transformers 4.52.1"):
        case = case_of({**row, "software": software}, Models(configs=tmp_path))
        Estimator().judge(case, 1)
    # The root stands gathered throughout.
    assert [_most_gathered(actions) for actions in found] == [1 + 1, 1 + 2]


def _most_gathered(actions: list[UnitAction]) -> int:
    live: set[str] = set()
    most = 0
    for action in actions:
        if action.act is ActionKind.UNSHARD:
            live = live | {action.unit.module}
        elif action.act in (ActionKind.RESHARD, ActionKind.REDUCE):
            live = live - {action.unit.module}
        most = max(most, len(live))
    return most


def test_torchtitan_looks_at_the_model() -> None:
    other = case_of({**BY_ID[TITAN], "model": "meta-llama/Meta-Llama-3-70B", "arch": None}, MODELS)
    assert isinstance(other, TitanCase)
    assert (other.titan.layers, other.titan.dim) == (80, 8192)
    assert "is not mirrored" in _reason(TITAN, model="deepseek-ai/DeepSeek-V3", arch=None)
    assert "model not at hand" in _reason(TITAN, model="someone/debugmodel", arch=None)
    assert "is not that of" in _reason(TITAN, model="meta-llama/Meta-Llama-3-70B")


def test_segments_of_torchtitan_s_own_tables_do_not_grow() -> None:
    """A commit's run is launched by the script of one node, which asks for segments that grow; the page's is not."""
    page = BY_ID[TITAN] | {"source": "pytorch/torchtitan:benchmarks/llama3_h100_202412_torchtitan.md@b5bcd76c66"}
    grows = {row["id"]: case_of(row, MODELS) for row in (BY_ID[TITAN], page | {"id": "page"})}
    assert [case.expandable for case in grows.values() if isinstance(case, TitanCase)] == [True, False]


def test_kempnerforge_s_dense_models_are_its_own() -> None:
    """Its tensor parallel is mirrored, its experts and stages are not; on one GPU FSDP2 says nothing."""
    row = {
        "id": "k",
        "group": "kempnerforge",
        "model": "7B Llama-3-style",
        "strategy": "FSDP2 over 2 + TP 4 with sequence parallelism",
        "parallel": {"tp": 4, "dp": 2},
        "gpu": {"model": "H200", "count": 8, "nodes": 2, "memory_gb": 141},
        "arch": {
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "ffn_dim_multiplier": 1.3,
            "vocab_size": 128256,
        },
        "dtype": {"params": "bfloat16"},
        "seq_len": 4096,
        "grad_accum": 2,
        "optimizer": "AdamW fused",
        "activation_checkpointing": "full, every block",
        "compile": True,
        "measured": {"peak_allocated_gib": 32.7},
    }
    case = case_of(row, MODELS)
    assert isinstance(case, ForgeCase)
    assert (case.forge.hidden, case.forge.tensor, case.accumulation, case.fused) == (14336, 4, 2, True)
    for changed, told in (
        ({"model": "MoE 16 experts"}, "experts, padded to the fullest"),
        ({"parallel": {"tp": 4, "pp": 2}}, "pipeline"),
        ({"parallel": {"tp": 1}, "gpu": {"model": "H200", "count": 1, "memory_gb": 141}}, "one GPU"),
    ):
        with pytest.raises(SetAside, match=told):
            case_of({**row, **changed}, MODELS)


def test_a_model_is_found_by_its_sizes_or_not_at_all() -> None:
    sizes = {"heads": 32, "hidden": 4096, "intermediate": 14336, "kv_heads": 8, "layers": 32, "vocab": 128256}
    found = case_of({**BY_ID[TITAN], "model": "someone/renamed", "arch": sizes}, MODELS)
    assert isinstance(found, TitanCase)
    configs = {"num_attention_heads": 32, "hidden_size": 4096, "intermediate_size": 14336, "num_key_value_heads": 8}
    named = {**BY_ID[TITAN], "arch": {**configs, "num_hidden_layers": 32, "vocab_size": 128256}}
    assert case_of({**named, "model": "someone/renamed"}, MODELS) == found
    assert _reason(SINGLE, model="someone/renamed") == "model not at hand"
    assert _setup(SINGLE, model="TheBloke/Mistral-7B-v0.1-GPTQ").model == "mistralai/Mistral-7B-v0.1"


def test_a_config_at_hand_is_used(tmp_path: Path) -> None:
    config = json.loads(_setup(SINGLE).config) | {"num_hidden_layers": 2}
    (tmp_path / "someone--renamed.json").write_text(json.dumps(config))
    case = case_of({**BY_ID[SINGLE], "model": "someone/renamed"}, Models(configs=tmp_path))
    assert isinstance(case, Setup)
    assert json.loads(case.config)["num_hidden_layers"] == 2


def test_a_row_s_name_is_no_path(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(_setup(SINGLE).config)
    assert _reason(SINGLE, model=str(path)) == "model not at hand"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"software": None}, "does not say which software ran it"),
        ({"strategy": "FSDP1 FULL_SHARD"}, "on one GPU"),
        ({"strategy": "Alpa"}, "Alpa is not modelled"),
        ({"optimizer": "Shampoo"}, "optimizer shampoo"),
        ({"dtype": None}, "type of the computation not stated"),
        ({"activation_checkpointing": "selective"}, "checkpointing selective"),
        ({"seq_len": 1e300}, "sequence length makes no sense"),
        ({"seq_len": -1}, "sequence length makes no sense"),
        ({"gpu": {"count": 1, "model": "Voodoo 2"}}, "no machine that is known"),
        ({"parallel": {"tp": 2}}, "tensor, pipeline"),
        ({"model": "mistralai/Mixtral-8x7B-v0.1"}, "experts"),
        ({"lora": {"rank": 8}}, "adapted modules not stated"),
        ({"quantization": {"bits": 3}}, "quantization makes no sense"),
        ({"compile": "max-autotune"}, "whether it is compiled makes no sense"),
        ({"grad_accum": 0}, "gradient accumulation makes no sense"),
        ({"grad_accum": "two"}, "gradient accumulation makes no sense"),
        ({"parallel": {"dp": 1.5}}, "degree dp makes no sense"),
        ({"parallel": "none"}, "degrees of parallelism make no sense"),
        ({"task": "dpo"}, "task dpo: no step of one model on one batch"),
        ({"arch": {"hidden_size": 4097}}, "its hidden (4097) is not that of mistralai/Mistral-7B-v0.1"),
    ],
)
def test_what_cannot_be_said_is_set_aside_in_words(changed: Row, told: str) -> None:
    assert told in _reason(SINGLE, **changed)


def test_a_power_limit_without_a_figure_is_no_power_limit() -> None:
    """Seconds follow the power: how long such a device takes is not known."""
    name = "tp-torchao-0008"
    with pytest.raises(SetAside, match="power limit that is not told"):
        speed_setup_of(BY_ID[name], MODELS)
    told = {**BY_ID[name], "gpu": {**BY_ID[name]["gpu"], "model": "B200 (power limited, 750 W)"}}
    assert ("gpu.power_limit", "750") in speed_setup_of(told, MODELS).workload.settings


# -- never a crash --------------------------------------------------------------------------------------------

ODD = st.sampled_from(
    [
        None,
        "",
        "x",
        0,
        -1,
        10**30,
        1e308,
        float("nan"),
        float("inf"),
        True,
        [],
        {},
        [None],
        {"x": {}},
        "\x00",
        "9" * 400,
    ]
)


def _paths(value: Any, before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(value, dict):
        return [before]
    return [before, *(path for name, inner in value.items() for path in _paths(inner, (*before, name)))]


@st.composite
def damaged(draw: st.DrawFn) -> tuple[Row, Kind]:
    """A row of the data with some fields taken away or made absurd."""
    row, kind = draw(st.sampled_from(ROWS))
    row = copy.deepcopy(row)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from([path for path in _paths(row) if path] or [("id",)]))
        inner = row
        for name in path[:-1]:
            inner = inner[name] if isinstance(inner.get(name), dict) else {}
        if draw(st.booleans()):
            inner.pop(path[-1], None)
        else:
            inner[path[-1]] = draw(ODD)
    return row, kind


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    return Scorer(MODELS)


@pytest.fixture
def _rules_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step is traced: what is left is everything that reads a row."""

    def stop(*_: Any, **__: Any) -> Any:
        raise SetAside("would be scored")

    monkeypatch.setattr(Estimator, "judge", stop)
    monkeypatch.setattr("benchmarks.accuracy.inference.estimate.figures_of", stop)
    monkeypatch.setattr("benchmarks.accuracy.speed.estimate.SpeedLines._provider", stop)
    monkeypatch.setattr("benchmarks.accuracy.kernels.estimate.peak_bytes", stop)


@pytest.mark.usefixtures("_rules_alone")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damaged())
def test_no_row_can_end_the_command(scorer: Scorer, given_row: tuple[Row, Kind]) -> None:
    row, kind = given_row
    found = scorer.one(row, kind)
    assert isinstance(found, Aside)
    assert found.reason
    assert "\n" not in found.reason
    assert not found.reason.startswith("the estimate failed"), row
    assert summary([], [found])["all"]["aside"] == 1


def test_a_fault_of_our_own_costs_one_row(scorer: Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "check", lambda *_: 1 / 0)
    found = scorer.one(BY_ID[SINGLE], Kind.MEMORY)
    assert isinstance(found, Aside)
    assert found.reason == "the estimate failed: ZeroDivisionError: division by zero"


# -- files ----------------------------------------------------------------------------------------------------


def test_kinds_are_told_by_the_rows() -> None:
    assert [set(truth.kinds) for truth in TRUTHS] == [
        {Kind.MEMORY, Kind.INFERENCE},
        {Kind.INFERENCE},
        {Kind.KERNELS},
        {Kind.SPEED},
    ]


@pytest.mark.parametrize("text", ["", "[1, 2", '{"rows": 3}', '[{"id": "x"}]', "[3]", "[]", "{}", "[" * 100_000])
def test_a_file_that_is_none_is_one_line_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path = tmp_path / "truth.json"
    path.write_text(text)
    with pytest.raises(InputError):
        read_truth(path)
    assert main(["--truth", str(path)]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "truth.json" in told


def test_what_is_no_row_is_set_aside_and_the_others_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, rows = tmp_path / "truth.json", tmp_path / "rows.json"
    path.write_text(json.dumps([7, {**BY_ID[SINGLE], "model": "someone/else"}, None]))
    assert main(["--truth", str(path), "--rows", str(rows)]) == 0
    capsys.readouterr()
    aside = {row["id"]: row["reason"] for row in json.loads(rows.read_text())["set_aside"]}
    stray = "no row: an object is needed"
    assert aside == {"entry 1": stray, "entry 3": stray, SINGLE: "model not at hand"}


def test_unknown_fields_are_one_note_and_the_rest_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "truth.json"
    path.write_text(json.dumps([{**BY_ID[SINGLE], "moon": "full", "model": "someone/else"}]))
    assert main(["--truth", str(path), "--json"]) == 0
    out = capsys.readouterr()
    assert out.err.count("\n") == 1
    assert "moon" in out.err
    group = json.loads(out.out)["groups"]["fms-acceleration, full-ft, single"]
    assert group == {
        "peak_allocated": {"n": 0, "median": None, "p95": None, "worst": None},
        "above_states": {"n": 0, "median": None, "p95": None, "worst": None},
        "peak_reserved": {"n": 0, "median": None, "p95": None, "worst": None},
        "device": {"n": 0, "inside": 0, "median": None, "width": None},
        "false_fits": 0,
        "false_no": 0,
        "aside": 1,
    }


def test_spread_is_of_absolute_values() -> None:
    assert spread([]) == {"n": 0, "median": None, "p95": None, "worst": None}
    assert spread([-0.4]) == {"n": 1, "median": 0.4, "p95": 0.4, "worst": 0.4}
    found = spread([(-1) ** i * i for i in range(1, 101)])
    assert found == {"n": 100, "median": 50.5, "p95": 95, "worst": 100}
