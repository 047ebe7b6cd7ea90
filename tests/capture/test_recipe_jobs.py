"""`--recipe`: TRL's trainers as captured against the same trainers run for real on a CPU, and as a user asks."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from gpu_plan.cli import main
from gpu_plan.planner.capture.parent import capture
from gpu_plan.planner.capture.request import CaptureRequest, PlannedDevice
from gpu_plan.planner.plan.document import from_json
from gpu_plan.planner.trace.storage import load
from gpu_plan.planner.workload.recipes import RECIPES
from tests.support.cpu_reference import measure
from tests.support.replay_cpu import counted, replayed, replayed_phases
from tests.support.script_reference import real_run

CPU = PlannedDevice(name="CPU", total_bytes=2**34, capability_major=None)
LENGTHS = ("--prompt-len", "24", "--completion-len", "40", "--compute", "float32", "--batch", "2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One recipe as its script is called."""

    recipe: str
    words: tuple[str, ...] = ()
    met_late: int = 0
    """Bytes that stood before the step, and that a plan counts from where the loss meets them."""

    def __str__(self) -> str:
        return " ".join((self.recipe, *self.words))


CASES = (
    Case(recipe="sft"),
    Case(recipe="sft", words=("--lora-rank", "4")),
    Case(recipe="dpo"),
    Case(recipe="dpo", words=("--lora-rank", "4")),
    Case(recipe="dpo", words=("--precompute",)),
    Case(recipe="orpo"),
    Case(recipe="cpo"),
    Case(recipe="simpo", words=("--lora-rank", "4")),
    Case(recipe="kto"),
    Case(recipe="reward"),
    Case(recipe="grpo", words=("--generations", "2")),
    Case(recipe="grpo", words=("--generations", "2", "--beta", "0.04", "--lora-rank", "4")),
    Case(recipe="grpo", words=("--generations", "2", "--reward-model", "REWARDS")),
    Case(recipe="grpo", words=("--generations", "2", "--whole-logits")),
    Case(recipe="grpo", words=("--generations", "4", "--beta", "0.04", "--lora-rank", "4", "--whole-logits")),
    Case(recipe="dpo", words=("--lora-rank", "4", "--lora-dropout", "0.1")),
    Case(recipe="dpo", words=("--reentrant",)),
    Case(recipe="orpo", words=("--lora-rank", "4", "--reentrant")),
    Case(recipe="rloo", words=("--generations", "2", "--beta", "0.05")),
    Case(recipe="distill", words=("--teacher", "MODEL")),
    Case(recipe="dpo", words=("--accumulation", "2")),
    Case(recipe="orpo", words=("--lora-rank", "4")),
    Case(recipe="kto", words=("--lora-rank", "4")),
    Case(recipe="kto", words=("--precompute",)),
    Case(recipe="reward", words=("--lora-rank", "4")),
    Case(recipe="grpo", words=("--generations", "4", "--accumulation", "2")),
    Case(recipe="rloo", words=("--generations", "2", "--beta", "0.05", "--lora-rank", "4")),
    Case(recipe="distill", words=("--teacher", "MODEL", "--lora-rank", "4")),
    Case(recipe="dpo", words=("--precompute", "--lora-rank", "4")),
    Case(recipe="simpo", met_late=2 * 2 * 64 * 8),  # labels of both answers of two pairs
    Case(recipe="cpo", words=("--lora-rank", "4", "--accumulation", "2")),
    Case(recipe="reward", words=("--accumulation", "2")),
    Case(recipe="kto", words=("--accumulation", "2")),
    Case(recipe="grpo", words=("--generations", "4", "--beta", "0.04", "--accumulation", "2")),
    Case(
        recipe="grpo", words=("--generations", "4", "--beta", "0.04", "--reward-model", "REWARDS", "--lora-rank", "4")
    ),
    Case(recipe="rloo", words=("--generations", "4", "--beta", "0.05", "--accumulation", "2")),
    Case(recipe="distill", words=("--teacher", "MODEL", "--accumulation", "2")),
)


def tiny_model(folder: Path) -> str:
    """A tiny model with weights, and in it a reward model of the same sizes."""
    from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

    config = LlamaConfig(
        vocab_size=512, hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, bos_token_id=1, eos_token_id=1, pad_token_id=2,
        tie_word_embeddings=False,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    config.num_labels = 1
    LlamaForSequenceClassification(config).save_pretrained(folder / "rewards")
    return str(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The tiny model, once."""
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_recipe_as_captured_is_the_recipe_as_run(
    case: Case, model: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    script = Path(str(resources.files("gpu_plan.planner.capture.recipes").joinpath(f"{case.recipe}.py")))
    folders = {"MODEL": model, "REWARDS": f"{model}/rewards"}
    words = ("--model", model, *LENGTHS, *(folders.get(word, word) for word in case.words))
    real = real_run(script, words, tmp_path)
    request = CaptureRequest(
        script=str(script), arguments=words, working_directory=str(tmp_path), device=CPU, seconds=1200.0
    )
    outcome, content = capture(request)
    facts = outcome.facts
    assert facts is not None
    assert facts.loop == RECIPES[case.recipe].trainer
    assert facts.spec["trainable_parameters"] == real["trainable"]
    assert sum(made.state_bytes for made in facts.optimizers) == real["state_bytes"]
    trace = load(content)
    figures = replayed(trace, facts.micro_batch)
    # Of `--junitxml`: `python -m benchmarks.real.recipe_runs` makes the table of them.
    kept = ("trainable", "state_bytes", "phases", "peak", "backward_end")
    planned = (*replayed_phases(trace, facts.micro_batch), figures.peak, figures.backward_end)
    record_property("real", json.dumps({name: real[name] for name in kept}))
    record_property("planned", json.dumps(planned))
    assert (figures.peak, figures.backward_end) == (real["peak"], real["backward_end"])
    forward, backward = real["phases"]
    assert planned[:2] == (forward + case.met_late, backward)


@pytest.mark.slow
def test_a_rollout_as_recorded_is_generate_as_run(model: str, tmp_path: Path) -> None:
    import numpy as np
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    script = Path(str(resources.files("gpu_plan.planner.capture.recipes").joinpath("grpo.py")))
    words = ("--model", model, "--prompt-len", "4", "--completion-len", "120", "--compute", "float32")
    request = CaptureRequest(
        script=str(script),
        arguments=(*words, "--batch", "4", "--generations", "4"),
        working_directory=str(tmp_path),
        device=CPU,
        seconds=1200.0,
    )
    facts = capture(request)[0].facts
    assert facts is not None
    recorded = {one.name: one.nbytes(4) for one in facts.passages}
    real = AutoModelForCausalLM.from_pretrained(model).eval()
    real.generation_config.eos_token_id = None
    ids = torch.full((4, 4), 5)

    def peak(tokens: int) -> int:
        config = GenerationConfig(
            max_new_tokens=tokens, do_sample=True, pad_token_id=2, eos_token_id=None, disable_compile=True
        )

        def run() -> torch.Tensor:
            with torch.no_grad():
                return real.generate(input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=config)

        run()
        return int(np.cumsum(counted(np.asarray([one.nbytes for one in measure(run).changes]))).max())

    assert recorded["prefill"] == peak(1) - ids.nbytes  # the mask that is made here
    # The cache is all but a few vectors of whole numbers as long as the answer.
    assert abs(recorded["decode"] - peak(120)) < 4 * 124 * 8


@pytest.mark.slow
def test_a_recipe_in_json_and_words(model: str, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    words = (model, "--recipe", "dpo", "--gpus", "2xH100", "--seq-len", "64", "--strategy", "ddp")
    assert main([*words, "--json"]) == 0
    text = capsys.readouterr().out
    document = json.loads(text)
    plan = document["plans"][0]
    recipe = plan["recipe"]
    assert document["model"]["id"] == model
    assert [(one["role"], one["trained"] > 0) for one in recipe["models"]] == [("policy", True), ("reference", False)]
    assert sum(one["at_peak_bytes"] for one in recipe["models"]) == plan["memory"]["peak_allocated_bytes"]
    assert recipe["worst_phase"] == plan["memory"]["phase_of_peak"]
    assert max(phase["peak_bytes"] for phase in recipe["phases"]) == plan["memory"]["peak_allocated_bytes"]
    assert (recipe["prompt_len"], recipe["completion_len"], recipe["reference"]) == (32, 32, "kept")
    assert from_json(text, "here").plans[0].recipe is not None
    assert main([*words, "--pin"]) == 0
    assert "dpo by TRL's DPOTrainer" in capsys.readouterr().out


@pytest.mark.slow
def test_liger_s_layers_spare_memory(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = (model, "--recipe", "dpo", "--gpus", "1xH100", "--pin", "--checkpointing", "none", "--seq-len", "128")
    peaks = []
    for more in ((), ("--set", "kernels.liger=true")):
        assert main([*words, *more, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        peaks.append(document["plans"][0]["memory"]["peak_allocated_bytes"])
        assert any("use_liger_kernel" in one["text"] for one in document["assumptions"]) == bool(more)
    assert peaks[1] < peaks[0]


@pytest.mark.slow
def test_a_rollout_beside_an_engine_in_json(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "--recipe",
        "grpo",
        "--generations",
        "4",
        "--prompt-len",
        "16",
        "--completion-len",
        "32",
        "--gpus",
        "1xH100",
    )
    asked = (model, *words, "--strategy", "single", "--json")
    assert main(asked) == 0
    alone = json.loads(capsys.readouterr().out)["plans"][0]
    assert [phase["name"] for phase in alone["recipe"]["phases"]][-1] == "rollout"
    cut = alone["strategy"]
    assert cut["micro_batch_size"] * cut["gradient_accumulation_steps"] == 4
    assert main([*asked, "--vllm", "colocate", "--vllm-memory", "0.5"]) == 0
    awake = json.loads(capsys.readouterr().out)["plans"][0]
    engine = awake["recipe"]["engine"]
    # Awake it keeps its share, but for what its largest batch takes while it runs.
    extra = awake["memory"]["device_used_bytes"] - alone["memory"]["device_used_bytes"]
    assert engine["update_bytes"] <= extra <= engine["requested_bytes"] + 2**28
    assert "log-probabilities" in [phase["name"] for phase in awake["recipe"]["phases"]]
    assert main([*asked, "--vllm", "colocate", "--vllm-memory", "0.5", "--vllm-sleep"]) == 0
    asleep = json.loads(capsys.readouterr().out)["plans"][0]
    assert asleep["recipe"]["worst_phase"] == "rollout" == asleep["memory"]["phase_of_peak"]
    assert asleep["recipe"]["engine"]["update_bytes"] < engine["update_bytes"] // 4
    at_peak = asleep["memory"]["at_peak"]
    assert at_peak["kv_cache"] == pytest.approx(asleep["recipe"]["engine"]["cache_bytes"], abs=2**20)
    assert sum(one["at_peak_bytes"] for one in asleep["recipe"]["models"]) == asleep["memory"]["peak_allocated_bytes"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--recipe", "dpo2"),
            "--recipe 'dpo2' is unknown: use sft, dpo, orpo, cpo, simpo, kto, reward, grpo, rloo, distill, ppo",
        ),
        (("--recipe", "ppo", "--generations", "4"), "weighed by the critic, not against others of its prompt"),
        (("--recipe", "grpo", "--generations", "1"), "so 2 at least"),
        (("--recipe", "grpo", "--micro-batch", "3", "--grad-accum", "1"), "no whole groups of --generations 8"),
        (("--recipe", "grpo", "--reference", "precomputed"), "its completions are new in every step"),
        (("--recipe", "grpo", "--vllm-sleep"), "--vllm-sleep is about vLLM: add --vllm"),
        (("--recipe", "grpo", "--vllm-memory", "0.3"), "--vllm-memory is about vLLM: add --vllm"),
        (("--recipe", "grpo", "--vllm", "here"), "use colocate, server"),
        (("--recipe", "grpo", "--vllm", "server", "--vllm-sleep"), "GPUs of its own and need not sleep"),
        (("--recipe", "grpo", "--vllm", "colocate", "--vllm-memory", "1.5"), "no share above 0 and at most 1"),
        (("--recipe", "grpo", "--vllm", "colocate", "--vllm-tp", "2"), "does not divide the 1 GPUs of a node"),
        (("--recipe", "dpo", "--tp", "2"), "--tp: --recipe dpo trains policy and reference, and only one model"),
        (("--recipe", "sft", "--cp", "2", "--peft", "lora"), "--cp: --recipe sft trains adapters"),
        (("--recipe", "dpo", "--vllm", "colocate"), "generates nothing: leave --vllm out"),
        (("--recipe", "dpo", "--generations", "4"), "generates nothing: leave --generations out"),
        (("--recipe", "dpo", "--reference", "none"), "its loss compares with one"),
        (("--generations", "8"), "add --recipe"),
        (("--recipe", "distill"), "needs its teacher: add --teacher MODEL"),
        (("--recipe", "sft", "--teacher", "x/y"), "has no teacher"),
        (("--recipe", "sft", "--reference", "kept"), "asks no reference"),
        (("--recipe", "dpo", "--reference", "there"), "use none, kept, adapters, precomputed"),
        (("--recipe", "dpo", "--reference", "adapters"), "add --peft lora"),
        (("--recipe", "dpo", "--reference", "kept", "--peft", "lora"), "keeps no other"),
        (("--recipe", "kto", "--micro-batch", "1"), "takes micro batches from 2 on"),
        (("--recipe", "dpo", "--seq-len", "9", "--prompt-len", "4", "--completion-len", "4"), "leave one out"),
        (("--recipe", "sft", "--completion-len", "1"), "a completion 2"),
        (("--recipe", "dpo", "--stack", "axolotl"), "leave --stack axolotl out"),
        (("--recipe", "dpo", "--fused-loss"), "TRL 1.16 takes no loss of Liger's"),
        (("--recipe", "reward", "--set", "kernels.liger=true"), "in the place of the reward model's"),
        (("--recipe", "dpo", "--set", "kernels.liger=yes"), "use true or false"),
        (("--recipe", "dpo", "--set", "recipe.logits=whole"), "is about --recipe grpo"),
        (("--set", "recipe.logits=whole"), "is about --recipe grpo"),
        (("--recipe", "dpo", "--set", "lora.dropout=0.1"), "add --peft lora"),
        (
            ("--recipe", "dpo", "--set", "checkpoint.reentrant=true", "--checkpointing", "none"),
            "needs --checkpointing full, and --checkpointing none is given",
        ),
        (("--recipe", "dpo", "--peft", "lora", "--set", "quant.double=true"), "add --peft qlora"),
        (("--recipe", "dpo", "--peft", "qlora", "--set", "quant.base=int8"), "is nf4 or in 16 bits"),
        (("--recipe", "dpo", "--lora-rank", "4"), "add --peft lora"),
        (("--recipe", "dpo", "--task", "infer"), "leave --task infer out"),
        (("--prompt-len", "8"), "add --recipe"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 64}))
    assert main([str(tmp_path), "--gpus", "1xH100", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err


def test_a_teacher_of_another_vocabulary_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, words in (("own", 64), ("other", 128)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": words}))
    teacher = str(tmp_path / "other")
    assert main([str(tmp_path / "own"), "--gpus", "1xH100", "--recipe", "distill", "--teacher", teacher]) == 2
    assert "has 128 words" in capsys.readouterr().err
