"""Files of jobs of several models: each is a recipe."""

from pathlib import Path

import pytest
import yaml

from gpu_plan.planner.from_config.convert import convert
from tests.support.configuration_files import HEAD

PREFERENCES = {
    "DPO by its loss": (HEAD + "loss_type: apo_zero\n", {"recipe": "dpo", "seq-len": "1024"}),
    "DPO of alignment-handbook": (
        HEAD.replace(": o\n", ": data/zephyr-7b-dpo-full\n") + "beta: 0.01\nmax_length: 1024\nmax_prompt_length: 512\n",
        {"recipe": "dpo", "seq-len": "1024", "prompt-len": "512", "stack": None},
    ),
    "DPO that asks first": (HEAD + "precompute_ref_log_probs: true\n", {"recipe": "dpo", "reference": "precomputed"}),
    "KTO of TRL": (HEAD + "desirable_weight: 1.0\nmax_length: 2048\n", {"recipe": "kto", "seq-len": "2048"}),
    "rewards of TRL": (HEAD + "center_rewards_coefficient: 0.01\n", {"recipe": "reward"}),
    "GRPO of TRL": (
        HEAD + "num_generations: 16\nmax_completion_length: 2048\nuse_vllm: true\nvllm_gpu_memory_utilization: 0.25\n",
        {
            "recipe": "grpo", "generations": "16", "prompt-len": "512", "completion-len": "2048", "vllm": "colocate",
            "checkpointing": "full", "precision": "bf16-mixed",
            "gpu-memory-utilization": "0.25", "reference": None, "seq-len": None, "vllm-sleep": "false",
        },
    ),
    "GRPO whose vLLM sleeps": (
        HEAD + "num_generations: 16\nuse_vllm: true\nvllm_enable_sleep_mode: true\n",
        {"recipe": "grpo", "vllm": "colocate", "vllm-sleep": "true"},
    ),
    "GRPO with a reference": (HEAD + "num_generations: 8\nbeta: 0.04\n", {"recipe": "grpo", "reference": "kept"}),
    "RLOO by its folder": (HEAD.replace(": o\n", ": my-rloo\n") + "num_generations: 4\n", {"recipe": "rloo"}),
    "rl of axolotl": (
        "base_model: x\nmicro_batch_size: 1\nsequence_len: 2048\nrl: ipo\n", {"recipe": "dpo", "seq-len": "2048"},
    ),
    "GRPO of axolotl": (
        "base_model: x\nmicro_batch_size: 2\nrl: grpo\n"
        "trl: {beta: 0.001, max_completion_length: 256, use_vllm: true}\n",
        {"recipe": "grpo", "completion-len": "256", "reference": "kept", "vllm": "colocate"},
    ),
    "DPO of axolotl on 4 bits": (
        "base_model: x\nmicro_batch_size: 1\nrl: dpo\nadapter: qlora\nload_in_4bit: true\n",
        {"recipe": "dpo", "peft": "qlora"},
    ),
    "rewards of axolotl": ("base_model: x\nreward_model: true\n", {"recipe": "reward"}),
    "stage of LLaMA-Factory": (
        HEAD + "finetuning_type: lora\nstage: dpo\ncutoff_len: 2048\n",
        {"recipe": "dpo", "seq-len": "2048", "peft": "lora"},
    ),
    "PPO of LLaMA-Factory": (
        HEAD + "finetuning_type: lora\nstage: ppo\nreward_model: r\ncutoff_len: 1024\nmax_new_tokens: 256\n",
        {
            "recipe": "ppo", "critic": "shared", "prompt-len": "1024", "completion-len": "256", "peft": "lora",
            "reference": "adapters", "reward-model": None, "seq-len": None, "stack": None, "checkpointing": "full",
        },
    ),
    "PPO of LLaMA-Factory, whole": (
        HEAD + "finetuning_type: full\nstage: ppo\nreward_model: x/rewards\nreward_model_type: full\n",
        {"recipe": "ppo", "critic": "shared", "reward-model": "x/rewards", "reference": "kept", "peft": None,
         "completion-len": "1024", "prompt-len": "2048"},
    ),
    "PPO of LLaMA-Factory whose rewards are served": (
        HEAD + "finetuning_type: lora\nstage: ppo\nreward_model: http://h/score\nreward_model_type: api\n",
        {"recipe": "ppo", "reward-model": "none", "reference": "adapters"},
    ),
    "ORPO of LLaMA-Factory": (HEAD + "finetuning_type: lora\nstage: dpo\npref_loss: orpo\n", {"recipe": "orpo"}),
    "SimPO of its authors": (
        HEAD + "gamma_beta_ratio: 0.5\nbeta: 2.0\nmax_length: 2048\nmax_prompt_length: 1800\n",
        {"recipe": "simpo", "seq-len": "2048", "prompt-len": "1800"},
    ),
    "SimPO with a supervised part": (HEAD + "gamma_beta_ratio: 0.5\nsft_weight: 0.1\n", {"recipe": "cpo"}),
    "SimPO of TRL": (HEAD + "loss_type: simpo\ncpo_alpha: 0\n", {"recipe": "simpo"}),
    "SimPO of TRL by default": (HEAD + "loss_type: simpo\n", {"recipe": "cpo"}),
    "SimPO by its name": (HEAD + "beta: 0.05\nrun_name: llama-3-simpo\n", {"recipe": "simpo"}),
    "SimPO of LLaMA-Factory": (HEAD + "finetuning_type: lora\nstage: dpo\npref_loss: simpo\n", {"recipe": "simpo"}),
    "SimPO of axolotl": ("base_model: x\nmicro_batch_size: 1\nrl: simpo\n", {"recipe": "cpo"}),
    "CPO of ms-swift": ("model: x\ntuner_type: full\nrlhf_type: cpo\n", {"recipe": "cpo"}),
    "SimPO of ms-swift": ("model: x\ntuner_type: full\nrlhf_type: simpo\ncpo_alpha: 0.0\n", {"recipe": "simpo"}),
    "rewards of LLaMA-Factory": (HEAD + "finetuning_type: full\nstage: rm\n", {"recipe": "reward"}),
    "KTO of ms-swift": ("model: x\ntuner_type: lora\nrlhf_type: kto\n", {"recipe": "kto", "micro-batch": "1"}),
    "GRPO of ms-swift": (
        "model: x\ntuner_type: lora\nrlhf_type: grpo\nper_device_train_batch_size: 4\nmax_completion_length: 1024\n"
        "use_vllm: true\nvllm_mode: colocate\nsleep_level: 1\nmax_length: 2048\n",
        {
            "recipe": "grpo", "recipe.logits": "whole", "reference": "adapters", "prompt-len": "2048",
            "completion-len": "1024", "generations": "8", "vllm": "colocate", "vllm-sleep": "true",
            "gpu-memory-utilization": "0.9", "grad-accum": "1", "seq-len": None, "lora.dropout": "0.05",
        },
    ),
    "GRPO of ms-swift, whole": (
        "model: x\ntuner_type: full\nrlhf_type: grpo\nbeta: 0.001\nreward_model: r/m\n",
        {"recipe": "grpo", "recipe.logits": "whole", "reference": "kept", "reward-model": "r/m", "vllm": None},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PREFERENCES)
def test_a_job_of_several_models_is_a_recipe(tmp_path: Path, name: str) -> None:
    content, expected = PREFERENCES[name]
    found = convert(yaml.safe_load(content), str(tmp_path / "job.yaml"), lambda *_: {})
    options = {said.option: said.value for said in found.options}
    assert {key: options.get(key) for key in expected} == expected


def test_smaller_batches_than_trl_takes_are_told(tmp_path: Path) -> None:
    content = yaml.safe_load("model: x\ntuner_type: lora\nrlhf_type: kto\nper_device_train_batch_size: 1\n")
    found = convert(content, str(tmp_path / "job.yaml"), lambda *_: {})
    assert "takes no less than 2: plan --micro-batch 2" in " ".join(found.approximated)
