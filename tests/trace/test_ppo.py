"""`--recipe ppo`: the job document that its words stand for, planned as the document itself is."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_plan.cli import main
from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.options.several.ppo import ppo_table
from gpu_plan.planner.options.several.read import read_job

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
[models.reward]
model = "own"
head = "reward"
strategy = "fsdp"
[models.reference]
model = "own"
strategy = "fsdp"
[[phases]]
name = "rollout"
does = "generate"
models = ["policy"]
[[phases]]
name = "log-probabilities"
does = "log-probabilities"
models = ["policy", "reference"]
[[phases]]
name = "values"
does = "forward"
models = ["critic"]
[[phases]]
name = "rewards"
does = "forward"
models = ["reward"]
[[phases]]
name = "update"
does = "train"
models = ["policy", "critic"]
"""


def test_its_words_are_planned_as_the_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "job.toml").write_text(JOB.replace('"own"', json.dumps(str(tmp_path / "own"))))
    how = ("--gpus", "2xT4", "--strategy", "zero2", "--micro-batch", "2", "--pin", "--json")
    assert main([str(tmp_path / "job.toml"), *how]) == 0
    document = json.loads(capsys.readouterr().out)
    words = ("--recipe", "ppo", "--prompt-len", "16", "--completion-len", "24")
    assert main([str(tmp_path / "own"), *words, *how]) == 0
    by_words = json.loads(capsys.readouterr().out)
    assert by_words["plans"] == document["plans"]
    assert [phase["name"] for phase in by_words["plans"][0]["several"]["phases"]] == [
        "rollout", "log-probabilities", "values", "rewards", "update",
    ]  # fmt: skip
    assert any("TRL 1.16 has no PPO trainer" in line["text"] for line in by_words["assumptions"])


def test_an_engine_rolls_out_and_weights_are_synced() -> None:
    table = ppo_table({"vllm": "colocate", "vllm-tp": "2", "vllm-sleep": "true"}, "x/y", frozen="fsdp")
    assert table["models"]["engine"] == {
        "model": "x/y", "engine": "vllm", "where": "colocate", "share": 0.3, "sleep": True, "tensor_parallel": 2,
    }  # fmt: skip
    assert [(phase["does"], phase["models"]) for phase in table["phases"][:2]] == [
        ("sync", ["engine"]),
        ("generate", ["engine"]),
    ]


@pytest.mark.parametrize(("word", "says"), [({}, "auto"), ({"vllm-sleep": "false"}, None)])
def test_whether_its_engine_sleeps_is_open_unless_somebody_says(word: dict[str, str], says: str | None) -> None:
    table = ppo_table({"vllm": "colocate", **word}, "x/y", frozen=None)
    assert table["models"]["engine"].get("sleep") == says
    asked = next(model for model in read_job(table, "here").models if model.engine is not None).engine
    assert asked is not None
    assert (asked.sleeps, asked.may_sleep) == (False, says == "auto")


def test_an_engine_sleeps_where_there_is_no_room_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "config.json").write_text(json.dumps({**CONFIG, "vocab_size": 32_000}))
    how = (
        "--gpus",
        "1xL4",
        "--prompt-len",
        "64",
        "--completion-len",
        "64",
        "--micro-batch",
        "64",
        "--strategy",
        "single",
    )
    words = (str(tmp_path / "own"), "--recipe", "ppo", *how, "--vllm", "colocate", "--json", "--vllm-memory")
    spread = {}
    for share in ("0.5", "0.96"):
        main([*words, share])
        document = json.loads(capsys.readouterr().out)
        plan = (document["plans"] or document["rejected"])[0]
        spread[share] = next(one["spread"] for one in plan["several"]["models"] if one["role"] == "engine")
    assert "asleep" not in spread["0.5"]
    assert spread["0.96"].endswith("asleep between rollouts")


def test_a_critic_on_a_packed_base_trains_its_head_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "config.json").write_text(json.dumps(CONFIG))
    how = ("--gpus", "1xL4", "--prompt-len", "16", "--completion-len", "24", "--micro-batch", "2", "--pin", "--json")
    assert main([str(tmp_path / "own"), "--recipe", "ppo", "--peft", "qlora", *how]) == 0
    models = json.loads(capsys.readouterr().out)["plans"][0]["several"]["models"]
    critic = next(one for one in models if one["role"] == "critic")
    policy = next(one for one in models if one["role"] == "policy")
    head, embedding = 64 + 1, 512 * 64
    # Adapters are alike; the critic has its head twice, frozen and trained, in the place of the policy's.
    assert critic["parameters"] - policy["parameters"] == 2 * head - embedding


def test_under_adapters_the_reference_is_the_policy_without_them() -> None:
    table = ppo_table({"peft": "lora", "lora-rank": "8", "reward-model": "x/judge"}, "x/y", frozen=None)
    assert set(table["models"]) == {"policy", "critic", "reward"}
    assert (table["models"]["critic"]["peft"], table["models"]["critic"]["lora_rank"]) == ("lora", 8)
    assert table["models"]["reward"] == {"model": "x/judge", "head": "reward"}


def test_a_critic_on_the_trunk_is_no_model_of_its_own() -> None:
    table = ppo_table({"critic": "shared", "micro-batch": "2"}, "x/y", frozen="fsdp")
    assert table["models"] == {
        "policy": {"model": "x/y", "train": True, "head": "shared"},
        "reward": {"model": "x/y", "head": "shared", "strategy": "fsdp"},
        "reference": {"model": "x/y", "head": "shared", "strategy": "fsdp"},
    }
    assert [(phase["name"], phase["models"]) for phase in table["phases"]] == [
        ("rollout", ["policy"]),
        ("rewards", ["reward"]),
        ("log-probabilities", ["policy", "reference"]),
        ("update", ["policy"]),
    ]
    assert table["phases"][0]["micro_batch"] == 2


def test_under_adapters_the_reward_is_another_one_beside_the_shared_critic() -> None:
    words = {"critic": "shared", "peft": "lora", "lora-rank": "8"}
    table = ppo_table(words, "x/y", frozen=None)
    assert table["models"] == {
        "policy": {
            "model": "x/y", "train": True, "head": "shared", "peft": "lora", "lora_rank": 8, "frozen_adapters": 1,
        }
    }  # fmt: skip
    assert [phase["models"] for phase in table["phases"]] == [["policy"]] * 4
    assert "reward" in ppo_table({**words, "reward-model": "x/judge"}, "x/y", frozen=None)["models"]
    served = ppo_table({**words, "reward-model": "none"}, "x/y", frozen=None)
    assert [phase["name"] for phase in served["phases"]] == ["rollout", "log-probabilities", "update"]


def test_a_shared_critic_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "config.json").write_text(json.dumps(CONFIG))
    words = ("--recipe", "ppo", "--critic", "shared", "--prompt-len", "16", "--completion-len", "24", "--json")
    how = ("--gpus", "2xT4", "--strategy", "ddp", "--micro-batch", "2", "--pin", "--peft", "lora", "--lora-rank", "4")
    assert main([str(tmp_path / "own"), *words, *how]) == 0
    document = json.loads(capsys.readouterr().out)
    several = document["plans"][0]["several"]
    assert [(phase["name"], phase["roles"]) for phase in several["phases"]] == [
        (name, ["policy"]) for name in ("rollout", "rewards", "log-probabilities", "update")
    ]
    # Rank 4 on both projections of two layers: 2 x 4 x (64 + 64 + 64 + 32); the head's 64 weights and its bias.
    assert document["model"]["trainable_parameters"] == 1_792 + 65
    assert any("TRL 0.9 as LLaMA-Factory runs it" in line["text"] for line in document["assumptions"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--recipe", "dpo", "--critic", "shared"), "--recipe dpo has no critic"),
        (("--critic", "shared"), "add --recipe ppo"),
        (("--set", "lora.beside=2"), "--set lora.beside needs"),
        (("--recipe", "ppo", "--set", "recipe.logits=whole"), "is about --recipe grpo"),
        (("--peft", "lora", "--set", "lora.beside=99"), "write a number up to 16"),
    ],
)
def test_a_critic_of_nothing_is_one_line(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert main([str(tmp_path), "--gpus", "1xT4", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_value_head_is_asked_for_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    how = ("--gpus", "1xT4", "--pin", "--set", "loss.variant=trl-0.9-ppo")
    assert main([str(tmp_path), *how]) == 2
    assert "LlamaForCausalLM has no value head beside its own" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"critic": "other"}, "use own or shared"),
        ({"generations": "4"}, "weighed by the critic"),
        ({"teacher": "x/z"}, "it has no teacher"),
        ({"stack": "trl"}, "leave it out"),
        ({"reference": "precomputed"}, "use kept, adapters or none"),
        ({"reference": "adapters"}, "add --peft lora"),
        ({"vllm-sleep": "true"}, "add --vllm"),
        ({"vllm-sleep": "false"}, "add --vllm"),
    ],
)
def test_what_makes_no_sense_is_one_line(words: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ppo_table(words, "x/y", frozen=None)
