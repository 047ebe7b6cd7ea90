"""Megatron's workers in a job document: every phase on every stage, what leaves the device, one line for the rest."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_plan.cli import main
from gpu_plan.planner.job.several.staged import exported
from gpu_plan.planner.megatron.layout import Layout

CONFIG: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 512, "hidden_size": 64,
    "intermediate_size": 160, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 256, "tie_word_embeddings": False,
}  # fmt: skip
WORKERS = """
strategy = "megatron"
tensor_parallel = 2
pipeline_parallel = 2
"""
ACTOR = f"""
prompt_len = 16
completion_len = 24
[models.actor]
model = "own"
train = true
checkpointing = "none"
settings = ["megatron.cross_entropy=verl", "megatron.overlap=false", "megatron.gradient_fusion=false"]
{WORKERS}
"""
REFERENCE = f"""
[models.reference]
model = "own"
{WORKERS}
"""
CRITIC = REFERENCE.replace("reference]", 'critic]\ntrain = true\nhead = "value"\ncheckpointing = "none"')
VALUES = """
[[phases]]
name = "values"
does = "forward"
models = ["critic"]
micro_batch = 2
[[phases]]
name = "update of the critic"
does = "train"
models = ["critic"]
micro_batch = 2
"""
UPDATE = """
[[phases]]
name = "update"
does = "train"
models = ["actor"]
micro_batch = 2
"""
SCORING = """
[[phases]]
name = "scoring"
does = "log-probabilities"
models = ["actor", "reference"]
micro_batch = 2
"""
WORDS = ("--gpus", "4xH100", "--global-batch", "8", "--pin")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def asked(folder: Path, text: str, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    (folder / "job.toml").write_text(text)
    return planned([str(folder / "job.toml"), *(words or WORDS)], capsys)


def planned(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    plan: dict[str, Any] = json.loads(capsys.readouterr().out)["plans"][0]
    return plan


def by_phase(plan: dict[str, Any]) -> dict[str, dict[str, int]]:
    phases = plan["several"]["phases"]
    return {phase["name"]: {one["role"]: one["bytes"] for one in phase["by_model"]} for phase in phases}


def test_alone_the_actor_is_planned_as_it_is_by_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    several = asked(folder, ACTOR + UPDATE, capsys)
    own = ("--strategy", "megatron", "--tp", "2", "--pp", "2", "--vpp", "1", "--seq-len", "40", "--micro-batch", "2")
    keys = ("cross_entropy=verl", "overlap=false", "gradient_fusion=false")
    sets = (*(word for key in keys for word in ("--set", f"megatron.{key}")), "--checkpointing", "none")
    alone = planned([str(folder / "own"), *WORDS, *own, *sets], capsys)
    assert several["memory"] == alone["memory"]
    assert several["stages"] == alone["stages"]


def test_each_phase_is_told_of_the_stage_that_peaks_in_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = asked(folder, ACTOR + REFERENCE + SCORING + UPDATE, capsys)
    phases = by_phase(plan)
    peaks = [stage["peak_allocated_bytes"] for stage in plan["stages"]]
    assert max(sum(one.values()) for one in phases.values()) == max(peaks) == plan["memory"]["peak_allocated_bytes"]
    # A rank's two layers, embedding or head, both norms: 16 bits for each element, a storage each.
    matrices = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 160
    held = 2 * (2 * (matrices // 2 + 2 * 64) + 512 * 64 // 2)
    assert phases["update"]["reference"] == pytest.approx(held, abs=512 * 16)


def test_what_lies_on_the_host_leaves_the_other_phases(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stays = asked(folder, ACTOR + REFERENCE + SCORING + UPDATE, capsys)
    away = 'between = "host"\n'
    actor = ACTOR.replace('checkpointing = "none"', f'checkpointing = "none"\n{away}')
    moved = asked(folder, actor + REFERENCE + away + SCORING + UPDATE, capsys)
    assert by_phase(moved)["update"]["reference"] == 0
    assert by_phase(moved)["scoring"]["actor"] < by_phase(stays)["scoring"]["actor"]
    # Gradients are given up, not moved: the host has weights, masters and moments, and the reference's weights.
    rest = {model["role"]: model["rest_bytes"] for model in moved["several"]["models"]}
    assert moved["memory"]["host_bytes"] == pytest.approx(rest["actor"] + rest["reference"], rel=0.01)


def test_a_critic_is_trained_by_the_same_workers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = asked(folder, ACTOR + CRITIC + VALUES + UPDATE, capsys)
    phases = by_phase(plan)
    rest = {model["role"]: model["rest_bytes"] for model in plan["several"]["models"]}
    # Weights, fp32 gradients, masters and moments of a stage stand beside the actor's update.
    assert phases["values"]["actor"] >= rest["actor"]
    assert rest["critic"] < phases["values"]["critic"] < phases["update of the critic"]["critic"]
    assert phases["update"]["critic"] < phases["update of the critic"]["critic"]
    # A row in the vocabulary's place, and 4 bytes a token where the actor has the logits of its words.
    assert phases["update of the critic"]["critic"] < phases["update"]["actor"]
    away = asked(folder, ACTOR + CRITIC + 'between = "host"\n' + VALUES + UPDATE, capsys)
    assert by_phase(away)["update"]["critic"] == 0
    seconds = {phase["name"]: phase["seconds"] for phase in plan["several"]["phases"]}
    assert 0 < seconds["values"] < seconds["update of the critic"]


@pytest.mark.parametrize(("between", "stays"), [("gradients", 2 + 4), ("optimizer", 12), ("weights", 2)])
def test_parts_of_the_actor_stay(folder: Path, capsys: pytest.CaptureFixture[str], between: str, stays: int) -> None:
    actor = ACTOR.replace('checkpointing = "none"', f'checkpointing = "none"\nbetween = "{between}"')
    plan = asked(folder, actor + REFERENCE + SCORING + UPDATE, capsys)
    model = plan["several"]["models"][0]
    elements = max(stage["parameters"] for stage in plan["stages"])
    assert model["between"] == between
    # One data parallel rank steps all of its stage.
    assert model["rest_bytes"] == pytest.approx(stays * elements, rel=0.05)


def test_weights_on_their_way_to_an_engine_stand_in_buffers_of_a_size() -> None:
    sizes = dict(zip((one := exported(Layout(tensor=2, pipeline=2), 2**34)).labels, one.fixed.tolist(), strict=True))
    assert sizes == {
        "parameters of another stage": 2**31, "buffer of a broadcast": 2**31, "buffer that is sent": 2**30,
        "buffer that is gathered into": 2**31, "gathered parameters": 2**31,
    }  # fmt: skip
    assert exported(Layout(), 2**34).nbytes == 0
    small = exported(Layout(pipeline=4), 2**20)
    assert small.fixed.tolist() == [2**18, 2**31]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ACTOR + 'head = "value"\n' + UPDATE, "head = 'value' under Megatron's workers is a critic's alone"),
        (ACTOR + REFERENCE.replace("= 2", "= 1") + SCORING + UPDATE, "the same degrees: write actor's"),
        (ACTOR + REFERENCE + "virtual_stages = 2\n" + SCORING + UPDATE, "the same degrees"),
        (
            (ACTOR + REFERENCE).replace("tensor_parallel", "virtual_stages = 2\ntensor_parallel") + SCORING + UPDATE,
            "passes forward only of virtual stages are not in this version",
        ),
        (ACTOR + UPDATE.replace("train", "generate").replace("update", "a") + UPDATE, "generate with an engine"),
        (
            ACTOR + '[models.critic]\nmodel = "own"\ntrain = true\nhead = "value"\n' + VALUES + UPDATE,
            "another trained model is theirs too",
        ),
        (
            ACTOR.replace("megatron.cross_entropy=verl", "fsdp.x=1") + UPDATE, "write megatron.KEY=VALUE",
        ),
        (ACTOR + 'loss = "verl-0.8"\n' + UPDATE, 'settings = ["megatron.cross_entropy=verl"]'),
        (
            ACTOR.replace('"megatron"', '"fsdp"') + UPDATE, 'tensor_parallel is about strategy = "megatron"',
        ),
        (ACTOR.replace('strategy = "megatron"', "") + UPDATE, "add engine, or strategy"),
    ],
)  # fmt: skip
def test_what_they_do_not_run_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (folder / "job.toml").write_text(text)
    assert main([str(folder / "job.toml"), *WORDS]) == 2
    told = capsys.readouterr().err.strip()
    assert said in told
    assert len(told.splitlines()) == 1


def test_a_loss_in_one_with_the_head_has_no_prediction_layers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = [word for key in ("mtp_layers=1", "cross_entropy=verl-fused") for word in ("--set", f"megatron.{key}")]
    words = [str(folder / "own"), *WORDS, "--strategy", "megatron", "--seq-len", "40", "--micro-batch", "2", *sets]
    assert main(words) == 2
    assert "add --set megatron.mtp_layers=0" in capsys.readouterr().err
