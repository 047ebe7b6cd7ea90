"""`plan JOB.toml` as a user asks: verdict, peaks by phase and by model, and one line for what makes no sense."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_plan.cli import main
from gpu_plan.planner.plan.document import from_json

CONFIG: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 512, "hidden_size": 64,
    "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 256, "tie_word_embeddings": False,
}  # fmt: skip
JOB = """
name = "PPO"
prompt_len = 16
completion_len = 24
[models.policy]
model = "own"
train = true
[models.critic]
model = "own"
train = true
head = "value"
[models.reference]
model = "own"
between = "host"
[models.reward]
model = "own"
head = "reward"
strategy = "zero3"
[[phases]]
name = "rollout"
does = "generate"
models = ["policy"]
micro_batch = 4
[[phases]]
name = "scoring"
does = "log-probabilities"
models = ["policy", "reference"]
micro_batch = 2
[[phases]]
name = "rewards"
does = "forward"
models = ["reward", "critic"]
micro_batch = 2
[[phases]]
name = "update"
does = "train"
models = ["policy", "critic"]
micro_batch = 2
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    for name, words in (("own", 512), ("other", 256)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({**CONFIG, "vocab_size": words}))
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return path


def asked(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    text = capsys.readouterr().out
    assert from_json(text, "here").plans[0].several is not None
    plan: dict[str, Any] = json.loads(text)["plans"][0]
    return plan


def test_peaks_by_phase_and_by_model(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = asked([str(job), "--gpus", "2xH100", "--strategy", "zero3", "--checkpointing", "none"], capsys)
    several, memory = plan["several"], plan["memory"]
    assert [phase["name"] for phase in several["phases"]] == ["rollout", "scoring", "rewards", "update"]
    assert all(phase["peak_bytes"] == sum(one["bytes"] for one in phase["by_model"]) for phase in several["phases"])
    assert max(phase["peak_bytes"] for phase in several["phases"]) == memory["peak_allocated_bytes"]
    assert sum(model["at_peak_bytes"] for model in several["models"]) == memory["peak_allocated_bytes"]
    assert [(one["role"], one["trained"], one["between"]) for one in several["models"]] == [
        ("policy", True, "device"),
        ("critic", True, "device"),
        ("reference", False, "host"),
        ("reward", False, "device"),
    ]
    phases = {phase["name"]: {one["role"]: one["bytes"] for one in phase["by_model"]} for phase in several["phases"]}
    assert phases["update"]["reference"] == phases["rewards"]["reference"] == phases["rollout"]["reference"] == 0
    # Both lie there between their phases; the host holds the reference whole.
    rest = {model["role"]: model["rest_bytes"] for model in several["models"]}
    assert phases["rollout"]["reward"] == pytest.approx(rest["reward"], abs=512 * 40)
    assert rest["reference"] <= memory["host_bytes"] < rest["reference"] + 2**16
    assert rest["reward"] < rest["reference"] / 1.9


def test_alone_a_model_is_planned_as_it_is_by_name(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head, _, tail = JOB.partition("[models.critic]")
    update = tail[tail.rindex("[[phases]]") :].replace(', "critic"', "")
    job.write_text(head + update)
    common = ["--gpus", "2xH100", "--pin", "--strategy", "ddp"]
    several = asked([str(job), *common], capsys)
    alone = asked_plain([str(job.parent / "own"), *common, "--seq-len", "40", "--micro-batch", "2"], capsys)
    assert several["memory"] == alone["memory"]


def asked_plain(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    plan: dict[str, Any] = json.loads(capsys.readouterr().out)["plans"][0]
    return plan


def test_words_and_pages_name_the_phases(job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = [str(job), "--gpus", "1xH100", "--pin"]
    for form in ("text", "md", "html"):
        assert main([*common, "--format", form]) == 0
        text = capsys.readouterr().out
        assert all(f"{name} (" in text for name in ("rollout", "scoring", "rewards", "update"))
        assert "4 models, 4 phases" in text
    drawn = tmp_path / "step.csv"
    assert main([*common, "--plot", str(drawn)]) == 0
    assert all(name in drawn.read_text() for name in ("scoring", "rewards"))


def test_a_policy_on_the_host_leaves_the_rollout_to_the_others(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = [str(job), "--gpus", "1xH100", "--pin"]
    here = asked(common, capsys)["several"]
    job.write_text(JOB.replace('model = "own"\ntrain = true', 'model = "own"\ntrain = true\nbetween = "host"', 1))
    there = asked(common, capsys)["several"]
    shares = [{one["role"]: one["bytes"] for one in found["phases"][2]["by_model"]} for found in (here, there)]
    assert shares[0]["policy"] > 0
    assert shares[1]["policy"] < 2**27  # Of the process: its workspaces.
    assert there["models"][0]["between"] == "host"


def test_seconds_by_phase(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asking = [str(job), "--gpus", "2xH100", "--strategy", "zero3", "--checkpointing", "none", "--global-batch", "8"]
    plan = asked(asking, capsys)
    several = plan["several"]
    phases = {phase["name"]: phase for phase in several["phases"]}
    assert all(0 < one["seconds_low"] <= one["seconds"] <= one["seconds_high"] for one in phases.values())
    assert several["seconds"] == pytest.approx(sum(one["seconds"] for one in phases.values()))
    assert several["longest_phase"] == max(phases, key=lambda name: phases[name]["seconds"]) == "rollout"
    assert not any(one["at_least"] for one in phases.values())
    # The policy's update and the critic's, of as many samples.
    own = plan["speed"]["step_seconds"]
    assert 1.5 * own < phases["update"]["seconds"] < 2.5 * own
    # The reference comes for its phase; the host keeps its copy.
    assert phases["scoring"]["moving_seconds"] > 0
    assert phases["update"]["moving_seconds"] == phases["rollout"]["moving_seconds"] == 0
    job.write_text(JOB.replace('does = "forward"', 'does = "forward"\nevery = 4'))
    seldom = {phase["name"]: phase["seconds"] for phase in asked(asking, capsys)["several"]["phases"]}
    assert seldom["rewards"] == pytest.approx(phases["rewards"]["seconds"] / 4)
    assert seldom["scoring"] == pytest.approx(phases["scoring"]["seconds"])


def test_weights_stay_and_the_rest_is_brought_to_train(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asking = [str(job), "--gpus", "2xH100", "--strategy", "zero3", "--checkpointing", "none"]
    here = asked(asking, capsys)["several"]
    text = JOB.replace("train = true", 'train = true\nbetween = "weights"')
    job.write_text(text)
    plan = asked(asking, capsys)
    stay = plan["several"]
    rest = {model["role"]: model["rest_bytes"] for model in stay["models"]}
    whole = {model["role"]: model["rest_bytes"] for model in here["models"]}
    # 2 of 16 bytes a parameter stay, and what is not cut up: neither states nor masters.
    assert rest["policy"] < 0.25 * whole["policy"]
    phases = [{one["name"]: one["peak_bytes"] for one in several["phases"]} for several in (here, stay)]
    assert phases[1]["rollout"] < phases[0]["rollout"]
    assert phases[1]["update"] < phases[0]["update"]
    moves = {one["name"]: one["moving_seconds"] for one in stay["phases"]}
    # To the host when the rollout begins, back when the update does.
    assert moves["rollout"] == pytest.approx(moves["update"])
    assert moves["rewards"] == 0
    away = whole["policy"] - rest["policy"] + whole["critic"] - rest["critic"]
    assert plan["memory"]["host_bytes"] == pytest.approx(away + whole["reference"], rel=0.05)
    # A critic that trains in a phase of its own, with more samples than the policy's.
    own = """[[phases]]
name = "critic"
does = "train"
models = ["critic"]
micro_batch = 8
"""
    job.write_text(text.replace('"policy", "critic"]\nmicro_batch = 2', '"policy"]\nmicro_batch = 2') + own)
    apart = asked(asking, capsys)["several"]
    peaks = {one["name"]: one["peak_bytes"] for one in apart["phases"]}
    assert peaks["critic"] > peaks["update"]


@pytest.mark.parametrize(
    ("before", "after", "words", "said"),
    [
        ("", "", ("--recipe", "dpo"), "--recipe beside a job document"),
        ("", "", ("--task", "infer"), "--task beside a job document"),
        ("", "", ("--micro-batch", "4"), "--micro-batch is said by"),
        ("", "", ("--seq-len", "4"), "--seq-len is said by"),
        ("", "", ("--tp", "2"), "--tp beside a job document"),
        ("", "", ("--strategy", "megatron"), "models.policy: write strategy = \"megatron\" and its degrees there"),
        ("", "", ("--strategy", "pp"), "models.policy: pp beside other models"),
        ('between = "host"', 'between = "weights"', (), "between = 'weights' is about what is trained"),
        ('"own"\nbetween', '"other"\nbetween', (), "has 256 words and policy"),
        ('"own"\nbetween', '"nowhere/at/all"\nbetween', (), "models.reference: "),
        ('"own"\nbetween', '"train.py"\nbetween', (), "is no model: name an id"),
        ('strategy = "zero3"', 'strategy = "zero1"', (), "a frozen model has none"),
        ('strategy = "zero3"', 'strategy = "megatron"', (), "only where they run policy too"),
        ('strategy = "zero3"', 'strategy = "zero9"', (), "zero9"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_one_line(
    job: Path, capsys: pytest.CaptureFixture[str], before: str, after: str, words: tuple[str, ...], said: str
) -> None:
    job.write_text(JOB.replace(before, after, 1))
    code = main([str(job), "--gpus", "2xH100", *words])
    out, err = capsys.readouterr()
    assert (code in (2, 3), out, len([line for line in err.splitlines() if "error" in line])) == (True, "", 1)
    assert said in err.splitlines()[-1]


def test_a_document_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nowhere.toml", "--gpus", "1xH100"]) == 3
    assert "name a job document that is there" in capsys.readouterr().err


def test_the_explorer_says_that_it_shows_one_model(job: Path) -> None:
    from gpu_plan.planner.errors import UsageError
    from gpu_plan.planner.options.request import Request
    from gpu_plan.planner.trace.provider import TraceProvider
    from gpu_plan.tui.engine.evaluate import Replays
    from gpu_plan.tui.engine.kept.providers import Providers

    request = Request(
        model=str(job), gpus="1xH100", words=(), settings=(), pinned=True, explain=False, trust_remote_code=False,
        revision=None, use_cache=False, command="",
    )  # fmt: skip
    with pytest.raises(UsageError, match="is a job document, and one model is explored"):
        list(Replays(Providers(TraceProvider)).pictures(request))


def test_a_document_is_not_launched(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = job.parent / "loop.py"
    script.write_text("print('never')\n")
    assert main([str(job), "--gpus", "2xcpu", "--execute", str(script)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "names models and phases, and no script that runs them" in err


def test_where_nothing_fits_other_devices_are_tried_with_the_whole_job(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """More of them, in groups that hold a copy each: the others' shards follow."""
    asking = [str(job), "--gpus", "2xT4", "--strategy", "fsdp", "--pin", "--set", "memory.reserve=14.5GiB", "--json"]
    assert main(asking) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["plans"] == []
    assert document["rejected"]


def test_what_is_trained_as_well_scores_under_every_strategy(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = asked([str(job), "--gpus", "2xH100", "--strategy", "zero2", "--checkpointing", "none"], capsys)
    rewards = next(phase for phase in plan["several"]["phases"] if phase["name"] == "rewards")
    assert rewards["seconds"] > 0


@pytest.mark.parametrize(
    "other", ["verl-0.8-fused", "openrlhf-0.11", "open-instruct", "verl-0.8-entropy", "llamafactory-v1"]
)
def test_whose_log_probabilities_a_document_says(job: Path, capsys: pytest.CaptureFixture[str], other: str) -> None:
    """Logits [rows, V] stand at the peak of an update once, in chunks, or beside copies: by the loss alone."""
    words = [str(job), "--gpus", "1xH100", "--strategy", "single", "--checkpointing", "none"]
    text = JOB.replace("completion_len = 24", "completion_len = 112").replace("micro_batch = 2", "micro_batch = 64")
    own_model = '[models.policy]\nmodel = "own"'

    def update(loss: str) -> int:
        job.write_text(text.replace(own_model, f'{own_model}\nloss = "{loss}"'))
        phases = asked(words, capsys)["several"]["phases"]
        return int(next(phase["peak_bytes"] for phase in phases if phase["name"] == "update"))

    own, found = update("verl-0.8"), update(other)
    assert found < own if other == "verl-0.8-fused" else found >= own


def test_a_loss_that_a_document_cannot_have(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line, said in (('loss = "verl"', "is unknown"), ('head = "value"\nloss = "verl-0.8"', "leave one out")):
        job.write_text(JOB.replace('[models.policy]\nmodel = "own"', f'[models.policy]\nmodel = "own"\n{line}'))
        assert main([str(job), "--gpus", "1xH100"]) == 2
        assert said in capsys.readouterr().err
    job.write_text(JOB.replace('[models.policy]\nmodel = "own"', '[models.policy]\nmodel = "own"\nloss = "verl-0.8"'))
    assert main([str(job), "--gpus", "1xH100", "--set", "loss.variant=trl-1.16"]) == 2
    assert "is said by" in capsys.readouterr().err
