"""Configurations that make no sense, are not there or are spoilt: one line each."""

import json
import random
import tomllib
from pathlib import Path

import pytest
import yaml

from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.from_config import show
from gpu_plan.planner.from_config.convert import convert
from tests.support.configuration_files import FILES, HEAD, spoilt, words

REFUSED = {
    "torchtune without a builder": (
        "model:\n  _component_: mine.model\nbatch_size: 2\n",
        "must be a builder of torchtune",
    ),
    "torchtune that evaluates": (
        "model:\n  _component_: torchtune.models.qwen2.qwen2_7b\ntasks: [mmlu]\nbatch_size: 8\ndtype: bf16\n",
        "the recipe trains nothing",
    ),
    "torchtune in two dimensions": (
        "model: {_component_: torchtune.models.llama3.llama3_70b}\noptimizer: {_component_: torch.optim.AdamW}\n"
        "loss: {_component_: x}\ntensor_parallel_dim: 8\n",
        "tensor_parallel_dim above 1 is not planned as torchtune does it",
    ),
    "torchtitan in two dimensions": (
        "model: {name: llama3}\ntraining: {}\nparallelism: {pipeline_parallel_degree: 4}\n",
        "parallelism.pipeline_parallel_degree 4 is not planned as torchtitan does it",
    ),
    "torchtitan of images": ("model: {name: flux}\ntraining: {}\nparallelism: {}\n", "flux is not a language model"),
    "litgpt whose batch is too small": (
        "checkpoint_dir: c/o/m\nprecision: bf16-true\ntrain: {global_batch_size: 4, micro_batch_size: 4}\n",
        "train.global_batch_size 4 is less than a micro batch of 4 on 8 devices",
    ),
    "litgpt in a type of its own": ("checkpoint_dir: c/o/m\nprecision: fp8\ntrain: {}\n", "use bf16-true, bf16-mixed"),
    "a model and nothing else of axolotl's": (
        "base_model: o/m\nscores: {f1: 0.5}\nrecord_count: 3\nlatency_ms: 2\nrates: {a: 1}\nrecall: 1\nexact: 0\n",
        "has scores, record_count, latency_ms, of which axolotl configuration knows nothing, beside base_model",
    ),
    "what decides the job in a table that is not understood": (
        "per_device_train_batch_size: 1\nuse_peft: true\npeft: {lora_r: 16, target_modules: [q_proj]}\n",
        "has peft.lora_r, peft.target_modules, of which TrainingArguments knows nothing",
    ),
    "a script's own settings in some of TRL's words": (
        "model_name: o/m\ntrain_file: x.jsonl\nmax_length: 512\nper_device_train_batch_size: 1\nlora_r: 8\n",
        "is not a configuration of a known kind",
    ),
    "a tool with some words of the Trainer": (
        "optim: adamw_torch\ngradient_checkpointing: true\nseq_length: 64\nper_device_batch_size: 1\nep_size: 2\n",
        "has seq_length, per_device_batch_size, ep_size, of which TrainingArguments knows nothing",
    ),
    "a tool with a word of open-instruct": (
        "use_flash_attn: true\nload_in_4bit: true\nlora_r: 16\nbatch_size: 2\n",
        "it is another tool's, say the job with the options of `plan MODEL`, or read it with --kind open-instruct",
    ),
    "a tool with torchtitan's tables": (
        "model: {base_model: m}\ntraining: {per_device_train_batch_size: 2, bf16: true}\nparallelism: {x: null}\n",
        "has training.per_device_train_batch_size, training.bf16, of which torchtitan configuration knows nothing",
    ),
    "LMFlow": (
        "dataset_path_list: [a, b]\ninitial_iter_idx: 0\nper_device_train_batch_size: 1\nmax_new_tokens: 8\n",
        "is an LMFlow job of several rounds",
    ),
    "ms-swift on Ray": (
        "rlhf_type: grpo\nmodel: m\nnum_generations: 8\ntrain: {gpus: 4}\nrollout: {gpus: 4}\n",
        "is an ms-swift job on Ray",
    ),
    "verl": ("actor_rollout_ref: {}\ntrainer: {}\n", "names no model"),
    "GPT-NeoX": (
        "pipe-parallel-size: 1\nzero_optimization: {stage: 1}\ntrain_micro_batch_size_per_gpu: 4\n",
        "is a GPT-NeoX configuration (by pipe-parallel-size)",
    ),
    "Megatron-LM by LLaMA-Factory": (
        HEAD + "finetuning_type: full\npipeline_model_parallel_size: 4\n",
        "is a Megatron-LM job (by pipeline_model_parallel_size)",
    ),
    "a loss that is none of TRL's": (HEAD + "loss_type: rpo\nbeta: 0.1\n", "is no loss of TRL's DPOTrainer"),
    "online DPO": (
        HEAD.replace(": o\n", ": runs/qwen-online-dpo\n") + "beta: 0.1\n",
        "online DPO by output_dir",
    ),
    "rlhf of ms-swift": ("model: x\ntuner_type: lora\nrlhf_type: gkd\n", "its student generates"),
    "entropies of ms-swift": (
        "model: x\ntuner_type: lora\nrlhf_type: grpo\nlog_entropy: true\n",
        "log_entropy: entropies of all logits",
    ),
    "ms-swift's vLLM nowhere": (
        "model: x\ntuner_type: lora\nrlhf_type: grpo\nuse_vllm: true\n",
        "vllm_mode is 'None': use colocate or server",
    ),
    "prediction of LLaMA-Factory": (HEAD + "finetuning_type: lora\ndo_predict: true\n", "nothing is trained"),
    "context parallel of LLaMA-Factory v1": (
        "model: x\ntrain_dataset: d\ndist_config: {name: fsdp2}\ncp_size: 2\n",
        "cp_size above 1 is not planned as LLaMA-Factory does it",
    ),
    "export of LLaMA-Factory v1": ("model: x\npeft_config: {name: lora, export_dir: d}\n", "no train_dataset"),
    "a part of verl's": ("_target_: verl.workers.config.FSDPOptimizerConfig\nlr: 1e-3\n", "is a verl configuration"),
    "one key that many have": (
        "strategy: fsdp\nmicro_batch_size: null\nmax_length: null\n",
        "is not a configuration of a known kind",
    ),
    "distillation of torchtune": (
        "model: {_component_: torchtune.models.qwen2.qwen2_0_5b}\nteacher_model: {_component_: x}\n",
        "distillation (teacher_model), a job of several models",
    ),
    "processes of axolotl": ("base_model: x\nprocess_reward_model: true\n", "reward modelling (process_reward_model)"),
    "a place for output alone": ("output_dir: o\nlearning_rate: 1e-4\n", "is not a configuration of a known kind"),
    "tables for each part": (
        "output_dir: o\nmodel: {name: resnet}\nnum_train_epochs: 1\n",
        "is not a configuration of a known kind",
    ),
    "another's word for the rate": (
        "output_dir: o\nlr: 1e-4\ngradient_checkpointing: true\n",
        "is not a configuration of a known kind",
    ),
    "prefixes": (HEAD + "delta_type: prefix\n", "is a training of prefixes, prompts or deltas (by delta_type)"),
    "degrees of an old torchtitan": (
        "model: {name: llama3}\ntraining: {pipeline_parallel_degree: 2}\nactivation_checkpoint: {mode: none}\n",
        "training.pipeline_parallel_degree 2 is not planned as torchtitan does it",
    ),
    "an evaluation of LLaMA-Factory": (
        "model_name_or_path: x\nfinetuning_type: lora\ntemplate: y\ntask: mmlu_test\nn_shot: 5\n",
        "nothing is trained",
    ),
    "rates alone": (
        "model_name_or_path: x\nlearning_rate: 1e-4\nlr_scheduler_type: cosine\n",
        "is not a configuration of a known kind",
    ),
    "open-instruct DPO in two passes": (
        HEAD + "use_slow_tokenizer: false\nuse_flash_attn: true\ndpo_beta: 5\nconcatenated_forward: false\n",
        "one pass, not one for each answer",
    ),
    "open-instruct DPO in 4 bits": (
        HEAD + "use_slow_tokenizer: true\nnum_epochs: 3\nuse_qlora: true\n",
        "use_qlora is not said in a job document",
    ),
    "ebft of axolotl": (
        "base_model: x\nmicro_batch_size: 1\nrl: ebft\n",
        "rl: ebft, a job of several models",
    ),
    "TRL's, nobody says whose": (HEAD + "beta: 0.05\nmax_prompt_length: 1792\n", "could be DPO's, KTO's or ORPO's"),
    "verl's": (
        "actor_rollout_ref: {model: {path: x}}\n",
        "ppo_micro_batch_size_per_gpu is missing, and verl has no default",
    ),
    "PPO of TRL": (HEAD + "num_ppo_epochs: 4\n", "reinforcement learning (num_ppo_epochs), a job of several models"),
    "stage of LLaMA-Factory": (
        HEAD + "finetuning_type: lora\nstage: ppo\n",
        "stage: ppo without reward_model: LLaMA-Factory refuses it",
    ),
    "PPO of LLaMA-Factory, whole with a reward adapter": (
        HEAD + "finetuning_type: full\nstage: ppo\nreward_model: r\n",
        "reward_model_type: lora, its default, needs finetuning_type: lora",
    ),
    "PPO of LLaMA-Factory with another reference": (
        HEAD + "finetuning_type: lora\nstage: ppo\nreward_model: r\nref_model: other\n",
        "ref_model: other: PPO is planned with the policy's own model",
    ),
    "8 bits without adapters": (HEAD + "load_in_8bit: true\n", "8-bit weights cannot be trained"),
    "not yaml": ("a: [1, 2", "is not valid YAML"),
    "a list": ("- 1\n- 2\n", "holds no keys"),
    "empty": ("", "holds no keys"),
    "of no kind": ("colour: red\n", "is not a configuration of a known kind (colour)"),
    "of two kinds": ("distributed_type: FSDP\nbase_model: x\n", "could be of two kinds"),
    "both precisions": ("output_dir: o\nbf16: true\nfp16: true\n", "bf16 and fp16 are both true"),
    "a word for a number": ("output_dir: o\nper_device_train_batch_size: many\n", "use a whole number of 1 or more"),
    "a word for a flag": ("output_dir: o\nbf16: perhaps\n", "use true or false"),
    "a word for a table": ("distributed_type: FSDP\nfsdp_config: all\n", "use a table"),
    "an impossible stage": ("zero_optimization:\n  stage: 7\n", "use 0 to 3"),
    "a sum that does not hold": (
        "train_batch_size: 100\ntrain_micro_batch_size_per_gpu: 4\ngradient_accumulation_steps: 2\n",
        "a global batch of 100 is not micro batch 4 x 2 accumulation steps x 8 processes",
    ),
    "fsdp and deepspeed": ("output_dir: o\nfsdp: full_shard\ndeepspeed: {zero_optimization: {stage: 2}}\n", "keep one"),
    "trainer against deepspeed": (
        "output_dir: o\nper_device_train_batch_size: 2\ndeepspeed: {train_micro_batch_size_per_gpu: 4}\n",
        "means micro-batch 4, but per_device_train_batch_size: 2 means 2",
    ),
    "uneven nodes": ("distributed_type: MULTI_GPU\nnum_machines: 3\nnum_processes: 8\n", "do not spread evenly"),
    "qlora in 16 bits": ("base_model: x\nadapter: qlora\n", "needs load_in_4bit"),
    "4 bits without adapters": ("base_model: x\nload_in_4bit: true\n", "need an adapter"),
    "two attentions": ("base_model: x\nflash_attention: true\nsdp_attention: true\n", "are both true: keep one"),
    "full and quantised": ("finetuning_type: full\nquantization_bit: 4\n", "only adapters train so"),
    "tensor parallel": ("base_model: x\ntensor_parallel_size: 2\n", "of which --tp is the nearest"),
    "autotrain": (
        "task: llm-sft\nbase_model: x\nproject_name: p\nbackend: local\nparams: {epochs: 2, peft: true}\n",
        "is an AutoTrain configuration (by task, params, project_name), which is not read yet",
    ),
    "fms-hf-tuning": (HEAD + "accelerate_launch_args: {use_fsdp: true}\n", "is an fms-hf-tuning job"),
    "a mode that Firefly has not": (HEAD + "train_mode: freeze\n", "use full, lora or qlora"),
    "megatron": ("distributed_type: MEGATRON_LM\n", "plan MODEL --strategy megatron"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_one_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, expected = REFUSED[name]
    path = tmp_path / "a.yaml"
    path.write_text(content)
    code, out, err = words(path, capsys, "--gpus", "8xH100", "-o", str(tmp_path / "out.txt"))
    assert code == 2, err
    assert expected in err.replace("are all true: keep one", "are both true: keep one")
    assert err.count("\n") == 1
    assert not out
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "deepspeed --module openrlhf.cli.train_dpo --beta 0.1\n",
            "names no model: --model.model_name_or_path is missing",
        ),
        ("python3 -m verl.trainer.main_ppo data.train_batch_size=8\n", "names no model"),
        ("accelerate launch train.py --config a.yaml\n", "that it starts (plan train.py --gpus SPEC -- ARGS)"),
    ],
)
def test_command_lines_are_told_by_whose_they_are(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.sh").write_text("#!/bin/bash\n" + text)
    code, _, err = words(tmp_path / "run.sh", capsys)
    assert (code, err.count("\n")) == (2, 1)
    assert said in err


def test_files_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = words(tmp_path / "none.yaml", capsys)
    assert code == 3
    assert "none.yaml cannot be read" in err
    (tmp_path / "a.yaml").write_text("output_dir: o\ndeepspeed: ds.json\n")
    code, _, err = words(tmp_path / "a.yaml", capsys)
    assert code == 3
    assert "deepspeed names ds.json, which is not there" in err
    (tmp_path / "a.yaml").write_text(f"output_dir: o\ndeepspeed: {'x' * 5000}.json\n")
    code, _, err = words(tmp_path / "a.yaml", capsys)
    assert code == 3, "a name that no file can have"
    assert err.count("\n") == 1


def test_spoilt_files_end_in_one_line_or_in_a_table() -> None:
    rng = random.Random(5)
    ends = {"read": 0, "refused": 0}
    for _ in range(1500):
        content = spoilt(yaml.safe_load(rng.choice(list(FILES.values()))[0]), rng)
        try:
            found = convert(content, "a.yaml", lambda path, key: {"zero_optimization": {"stage": 3}}, world=8)
        except PlanError:
            ends["refused"] += 1
            continue
        tomllib.loads(show.toml(found))
        try:
            assert show.command(found) in show.text(found, str)
            json.dumps(show.document(found))
        except PlanError:
            ends["refused"] += 1
            continue
        ends["read"] += 1
    assert min(ends.values()) > 300
