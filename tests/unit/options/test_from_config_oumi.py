"""`plan from-config` on Oumi's YAML: its own words for transformers' and TRL's trainers."""

import pytest
import yaml

from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.from_config.convert import convert

OUMI = """
model: {model_name: a/b, model_max_length: 2048, torch_dtype_str: bfloat16}
data: {train: {datasets: [{dataset_name: x}]}}
training:
  trainer_type: TRL_DPO
  use_peft: true
  per_device_train_batch_size: 4
  gradient_accumulation_steps: 2
  enable_gradient_checkpointing: true
  trainer_kwargs: {max_prompt_length: 512, max_length: "${model.model_max_length}"}
peft: {q_lora: true, lora_r: 64, lora_target_modules: [q_proj, v_proj]}
fsdp: {enable_fsdp: true, sharding_strategy: FULL_SHARD}
"""


def oumi(text: str = OUMI) -> dict[str, str]:
    found = convert(yaml.safe_load(text), "oumi.yaml", lambda path, key: {}, world=8)
    return {said.option: said.value for said in found.options}


def test_oumis_words_for_trls_trainers() -> None:
    found = oumi()
    wanted = {
        "recipe": "dpo", "seq-len": "2048", "prompt-len": "512", "micro-batch": "4", "grad-accum": "2", "peft": "qlora",
        "lora-rank": "64", "lora-targets": "q_proj,v_proj", "checkpointing": "full", "strategy": "fsdp1",
        "precision": "bf16",
    }  # fmt: skip
    assert found.items() >= wanted.items()
    plain = oumi(OUMI.replace("TRL_DPO", "TRL_SFT").replace("use_peft: true", "use_peft: false"))
    assert "recipe" not in plain
    assert "peft" not in plain
    assert plain["stack"] == "trl"


def test_oumis_rollouts() -> None:
    grpo = "trainer_type: TRL_GRPO\n  grpo: {num_generations: 4, max_completion_length: 256, use_vllm: true}"
    found = oumi(OUMI.replace("trainer_type: TRL_DPO", grpo))
    assert (found["recipe"], found["generations"], found["completion-len"]) == ("grpo", "4", "256")
    assert found["vllm"] == "colocate"


@pytest.mark.parametrize(
    ("trainer", "error", "said"),
    [
        ("TRL_GKD", UsageError, "its student generates"),
        ("VERL_GRPO", UsageError, "a job document describes"),
        ("TRL_PPO", InputError, "training.trainer_type is 'TRL_PPO': use HF, TRL_SFT, OUMI, TRL_DPO"),
    ],
)
def test_trainers_of_oumis_that_no_recipe_runs(trainer: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        oumi(OUMI.replace("TRL_DPO", trainer))
