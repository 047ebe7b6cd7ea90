"""`--recipe ppo`: the job document that its words stand for, planned as the document itself is."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_plan.cli import main
from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.options.several.ppo import ppo_table

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


def test_under_adapters_the_reference_is_the_policy_without_them() -> None:
    table = ppo_table({"peft": "lora", "lora-rank": "8", "reward-model": "x/judge"}, "x/y", frozen=None)
    assert set(table["models"]) == {"policy", "critic", "reward"}
    assert (table["models"]["critic"]["peft"], table["models"]["critic"]["lora_rank"]) == ("lora", 8)
    assert table["models"]["reward"] == {"model": "x/judge", "head": "reward"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"generations": "4"}, "weighed by the critic"),
        ({"teacher": "x/z"}, "it has no teacher"),
        ({"stack": "trl"}, "leave it out"),
        ({"reference": "precomputed"}, "use kept, adapters or none"),
        ({"reference": "adapters"}, "add --peft lora"),
        ({"vllm-sleep": "true"}, "add --vllm"),
    ],
)
def test_what_makes_no_sense_is_one_line(words: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ppo_table(words, "x/y", frozen=None)
