"""`plan from-config`: files of other tools, written as their users write them, become the right options."""

import json
import random
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from gpu_plan.cli import main
from gpu_plan.executor.launch.export import export
from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.from_config import show
from gpu_plan.planner.from_config.convert import convert
from tests.support.launch_plans import job, saved

LLAMA = "meta-llama/Llama-3.1-8B"

FILES: dict[str, tuple[str, str]] = {
    "accelerate-ddp.yaml": (
        """
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: MULTI_GPU
gpu_ids: all
mixed_precision: bf16
num_machines: 1
num_processes: 8
rdzv_backend: static
""",
        "MODEL --gpus 8xH100 --strategy ddp --precision bf16-mixed --stack accelerate",
    ),
    "accelerate-one.yaml": (
        "distributed_type: 'NO'\nnum_machines: 1\nnum_processes: 1\nmixed_precision: fp16\n",
        "MODEL --gpus 1xH100 --strategy single --precision fp16-mixed --stack accelerate",
    ),
    "accelerate-fsdp2.yaml": (
        """
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_reshard_after_forward: false
  fsdp_offload_params: true
  fsdp_activation_checkpointing: true
mixed_precision: bf16
num_machines: 2
num_processes: 16
""",
        "MODEL --gpus 2x8xH100 --strategy fsdp --offload all --precision bf16-mixed --checkpointing full"
        " --stack accelerate --set fsdp.reshard_after_forward=false",
    ),
    "accelerate-te.yaml": (
        "distributed_type: 'NO'\nnum_processes: 1\nmixed_precision: fp8\nfp8_config:\n  fp8_backend: TE\n",
        "MODEL --gpus 1xH100 --strategy single --precision fp8-mixed --stack accelerate --set fp8.backend=te",
    ),
    "accelerate-fsdp1.yaml": (
        """
distributed_type: FSDP
fsdp_config:
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_offload_params: false
  fsdp_backward_prefetch: BACKWARD_PRE
mixed_precision: 'no'
num_processes: 4
""",
        "MODEL --gpus 4xH100 --strategy fsdp1 --offload none --precision fp32 --stack accelerate",
    ),
    "accelerate-zero3.yaml": (
        """
deepspeed_config:
  gradient_accumulation_steps: 4
  gradient_clipping: 1.0
  offload_optimizer_device: cpu
  offload_param_device: cpu
  zero3_init_flag: true
  zero_stage: 3
distributed_type: DEEPSPEED
mixed_precision: bf16
num_processes: 8
""",
        "MODEL --gpus 8xH100 --strategy zero3 --offload all --precision bf16-mixed --grad-accum 4 --stack accelerate"
        " --set clip.max_norm=1.0",
    ),
    "zero2.json": (
        """
{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2,
 "bf16": {"enabled": true}, "gradient_clipping": 1.0, "steps_per_print": 10,
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95]}},
 "zero_optimization": {"stage": 2, "reduce_bucket_size": 2e8, "overlap_comm": true,
                       "offload_optimizer": {"device": "cpu", "pin_memory": true}}}
""",
        "MODEL --gpus 8xH100 --strategy zero2 --offload optimizer --precision bf16-mixed --optimizer adamw-fused"
        " --micro-batch 4 --grad-accum 2 --set clip.max_norm=1.0 --set zero.overlap_comm=true"
        " --set zero.reduce_bucket_size=200000000",
    ),
    "zero3-auto.json": (
        """
{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
 "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"},
 "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "stage3_max_live_parameters": 1e8}}
""",
        "MODEL --gpus 8xH100 --strategy zero3 --offload none --set zero.max_live_parameters=100000000",
    ),
    "zero3-nvme.json": (
        """
{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3,
 "offload_optimizer": {"device": "nvme", "nvme_path": "/Local_nvme", "buffer_count": 6},
 "offload_param": {"device": "nvme", "nvme_path": "/Local_nvme", "buffer_count": 12, "max_in_cpu": 1e8}}}
""",
        "MODEL --gpus 8xH100 --strategy zero3 --offload nvme --precision bf16-mixed"
        " --set zero.max_in_cpu=100000000 --set zero.nvme_path=/Local_nvme --set zero.optimizer_buffer_count=6"
        " --set zero.param_buffer_count=12",
    ),
    "zero3-optimizer-on-nvme.json": (
        """
{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}}
""",
        "MODEL --gpus 8xH100 --strategy zero3 --offload nvme --precision bf16-mixed --set zero.offload_param=none",
    ),
    "training_args.yaml": (
        f"""
model_name_or_path: {LLAMA}
output_dir: out
per_device_train_batch_size: 2
gradient_accumulation_steps: 8
learning_rate: 2.0e-5
bf16: true
gradient_checkpointing: true
optim: adamw_torch_fused
fsdp: full_shard auto_wrap
fsdp_config:
  version: 2
""",
        f"{LLAMA} --gpus 8xH100 --strategy fsdp --offload none --precision bf16-mixed --optimizer adamw-fused"
        " --micro-batch 2 --grad-accum 8 --checkpointing full --stack trainer",
    ),
    "trainer-plain.json": (
        '{"output_dir": "out", "learning_rate": 5e-5, "num_train_epochs": 3, "optim": "adamw_torch", "fsdp": null}',
        "MODEL --gpus 8xH100 --strategy ddp --precision fp32 --optimizer adamw --micro-batch 8 --grad-accum 1"
        " --checkpointing none --stack trainer",
    ),
    "sft.yaml": (
        f"""
model_name_or_path: {LLAMA}
attn_implementation: flash_attention_2
use_peft: true
lora_r: 32
lora_target_modules: [q_proj, v_proj]
max_length: 2048
per_device_train_batch_size: 4
learning_rate: 1.0e-4
output_dir: out
""",
        f"{LLAMA} --gpus 8xH100 --strategy ddp --precision bf16-mixed --optimizer adamw-fused --micro-batch 4"
        " --grad-accum 1 --seq-len 2048 --checkpointing full --attention flash --peft lora --lora-rank 32"
        " --lora-targets q_proj,v_proj --stack trl --set lora.dropout=0.05",
    ),
    "axolotl-qlora.yml": (
        f"""
base_model: {LLAMA}
load_in_4bit: true
adapter: qlora
lora_r: 32
lora_dropout: 0.05
lora_target_linear: true
datasets:
  - path: tatsu-lab/alpaca
sequence_len: 4096
sample_packing: true
micro_batch_size: 2
gradient_accumulation_steps: 4
optimizer: paged_adamw_8bit
bf16: auto
gradient_checkpointing: true
flash_attention: true
wandb_project:
""",
        f"{LLAMA} --gpus 8xH100 --strategy ddp --precision bf16-mixed --optimizer paged-adamw-8bit --micro-batch 2"
        " --grad-accum 4 --seq-len 4096 --checkpointing full --attention flash --peft qlora --lora-rank 32"
        " --lora-targets all-linear --stack axolotl --set lora.dropout=0.05 --set quant.double=true",
    ),
    "axolotl-full.yml": (
        f"""
base_model: {LLAMA}
sequence_len: 8192
micro_batch_size: 1
batch_size: 8
bf16: true
plugins: [axolotl.integrations.liger.LigerPlugin]
liger_rope: true
liger_fused_linear_cross_entropy: true
""",
        f"{LLAMA} --gpus 8xH100 --strategy ddp --precision bf16-mixed --optimizer adamw-fused --micro-batch 1"
        " --grad-accum 8 --seq-len 8192 --checkpointing none --fused-loss --stack axolotl"
        " --set dtype.params=bfloat16 --set kernels.liger=true",
    ),
    "axolotl-fsdp.yml": (
        f"""
base_model: {LLAMA}
sequence_len: 2048
micro_batch_size: 1
gradient_accumulation_steps: 2
bf16: true
optimizer: adamw_torch
fsdp_version: 2
fsdp_config:
  offload_params: true
  transformer_layer_cls_to_wrap: LlamaDecoderLayer
""",
        f"{LLAMA} --gpus 8xH100 --strategy fsdp --offload all --precision bf16-mixed --optimizer adamw --micro-batch 1"
        " --grad-accum 2 --seq-len 2048 --checkpointing none --stack axolotl",
    ),
    "llamafactory-lora.yaml": (
        f"""
model_name_or_path: {LLAMA}
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 16
lora_target: all
dataset: alpaca_en_demo
template: llama3
cutoff_len: 1024
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
bf16: true
flash_attn: fa2
""",
        f"{LLAMA} --gpus 8xH100 --strategy ddp --precision bf16-mixed --optimizer adamw-fused --micro-batch 1"
        " --grad-accum 8 --seq-len 1024 --checkpointing full --attention flash --peft lora --lora-rank 16"
        " --lora-targets all-linear --stack llama-factory",
    ),
    "llamafactory-full.yaml": (
        f"""
model_name_or_path: {LLAMA}
finetuning_type: full
deepspeed: ds3.json
template: llama3
pure_bf16: true
disable_gradient_checkpointing: true
per_device_train_batch_size: 2
enable_liger_kernel: true
""",
        f"{LLAMA} --gpus 8xH100 --strategy zero3 --offload none --precision bf16 --optimizer adamw-fused"
        " --micro-batch 2 --grad-accum 1 --seq-len 2048 --checkpointing none --attention sdpa --stack llama-factory"
        " --set kernels.liger=true",
    ),
}


def words(path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str, str]:
    code = main(["from-config", str(path), *more])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return code, captured.out, captured.err


@pytest.mark.parametrize("name", FILES)
def test_a_file_becomes_the_options_it_means(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, expected = FILES[name]
    (tmp_path / name).write_text(content)
    (tmp_path / "ds3.json").write_text('{"zero_optimization": {"stage": 3}, "train_batch_size": "auto"}')
    known = "num_processes" in content
    code, out, _ = words(tmp_path / name, capsys, "--json", "--gpus", "H100" if known else "8xH100")
    assert code == 0
    found = json.loads(out)
    assert found["command"] == f"plan {expected}"
    assert found["kind"] == name.partition("-")[0].partition(".")[0].replace("training_args", "trainer").replace(
        "sft", "trainer"
    ).replace("zero2", "deepspeed").replace("zero3", "deepspeed")


def test_keys_without_a_meaning_are_all_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(FILES["axolotl-qlora.yml"][0])
    _, out, _ = words(path, capsys)
    assert "Changes neither memory nor time (3 keys): datasets, sample_packing, wandb_project" in out
    assert "Not understood" not in out
    assert "on one GPU that is --strategy single, on more --strategy ddp" in out
    path.write_text(FILES["zero2.json"][0])
    _, out, _ = words(path, capsys, "--json")
    assert json.loads(out)["passed_over"] == ["steps_per_print", "optimizer.params.lr", "optimizer.params.betas"]
    assert json.loads(out)["not_understood"] == []
    path.write_text(HEAD + "colour_of_the_gpu: red\nseed: 1\n")
    _, out, _ = words(path, capsys)
    assert "Not understood (1 keys): colour_of_the_gpu" in out


HEAD = "model_name_or_path: m\noutput_dir: o\nlearning_rate: 1e-5\n"
"""What every Trainer's file has, and the files of many other tools with it."""
EIGHT_BITS = {
    "trainer": HEAD + "use_peft: true\nload_in_8bit: true\n",
    "axolotl": "base_model: x\nmicro_batch_size: 1\nadapter: lora\nload_in_8bit: true\n",
    "llamafactory": HEAD + "finetuning_type: lora\nquantization_bit: 8\n",
}


@pytest.mark.parametrize("kind", EIGHT_BITS)
def test_a_base_of_eight_bits(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(EIGHT_BITS[kind])
    code, out, _ = words(path, capsys, "--json")
    document = json.loads(out)
    assert (code, document["kind"], document["options"]["peft"]) == (0, kind, "qlora")
    assert document["settings"]["quant.base"] == "int8"


def test_what_sft_of_trl_has_on_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(HEAD + "dataset_mixture: {datasets: []}\n")
    _, out, _ = words(path, capsys, "--json")
    options = json.loads(out)["options"]
    assert (options["precision"], options["checkpointing"], options["seq-len"]) == ("bf16-mixed", "full", "1024")


def test_a_sub_group_for_each_parameter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "zero3.json"
    path.write_text('{"zero_optimization": {"stage": 3, "sub_group_size": 0}}')
    code, out, _ = words(path, capsys, "--json")
    assert (code, json.loads(out)["settings"]["zero.sub_group_size"]) == (0, "0")


def test_what_is_planned_otherwise_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("base_model: x\nmicro_batch_size: 1\noptimizer: rmsprop\nflex_attention: true\n")
    _, out, _ = words(path, capsys)
    said = out.partition("Planned otherwise:")[2]
    for part in ("rmsprop is an optimizer", "flex_attention is an attention"):
        assert part in said


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
        "tensor_parallel_dim above 1, --tp is not built yet",
    ),
    "torchtitan in two dimensions": (
        "model: {name: llama3}\ntraining: {}\nparallelism: {pipeline_parallel_degree: 4}\n",
        "parallelism.pipeline_parallel_degree above 1, --pp is not built yet",
    ),
    "torchtitan of images": ("model: {name: flux}\ntraining: {}\nparallelism: {}\n", "flux is not a language model"),
    "litgpt whose batch is too small": (
        "checkpoint_dir: c/o/m\nprecision: bf16-true\ntrain: {global_batch_size: 4, micro_batch_size: 4}\n",
        "train.global_batch_size 4 is less than a micro batch of 4 on 8 devices",
    ),
    "litgpt in a type of its own": ("checkpoint_dir: c/o/m\nprecision: fp8\ntrain: {}\n", "use bf16-true, bf16-mixed"),
    "LMFlow": (
        "dataset_path_list: [a, b]\ninitial_iter_idx: 0\nper_device_train_batch_size: 1\nmax_new_tokens: 8\n",
        "is an LMFlow job of several rounds",
    ),
    "ms-swift on Ray": (
        "rlhf_type: grpo\nmodel: m\nnum_generations: 8\ntrain: {gpus: 4}\nrollout: {gpus: 4}\n",
        "is an ms-swift job on Ray",
    ),
    "verl": ("actor_rollout_ref: {}\ntrainer: {}\n", "is a verl configuration"),
    "GPT-NeoX": (
        "pipe-parallel-size: 1\nzero_optimization: {stage: 1}\ntrain_micro_batch_size_per_gpu: 4\n",
        "is a GPT-NeoX configuration (by pipe-parallel-size)",
    ),
    "Megatron-LM by LLaMA-Factory": (
        HEAD + "finetuning_type: full\npipeline_model_parallel_size: 4\n",
        "is a Megatron-LM job (by pipeline_model_parallel_size)",
    ),
    "rlhf of ms-swift": ("model: x\ntuner_type: lora\nrlhf_type: grpo\n", "its GRPO trainer is its own"),
    "prediction of LLaMA-Factory": (HEAD + "finetuning_type: lora\ndo_predict: true\n", "nothing is trained"),
    "context parallel of LLaMA-Factory v1": (
        "model: x\ntrain_dataset: d\ndist_config: {name: fsdp2}\ncp_size: 2\n",
        "cp_size above 1, --cp as LLaMA-Factory has it is not built yet",
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
    "rates alone": (
        "model_name_or_path: x\nlearning_rate: 1e-4\nlr_scheduler_type: cosine\n",
        "is not a configuration of a known kind",
    ),
    "open-instruct DPO": (
        HEAD + "use_slow_tokenizer: false\nuse_flash_attn: true\ndpo_beta: 5\n",
        "preference training",
    ),
    "open-instruct DPO by its epochs": (
        HEAD + "use_slow_tokenizer: true\nnum_epochs: 3\n",
        "preference training (num_ep",
    ),
    "ebft of axolotl": (
        "base_model: x\nmicro_batch_size: 1\nrl: ebft\n",
        "rl: ebft, a job of several models",
    ),
    "SimPO of axolotl": ("base_model: x\nmicro_batch_size: 1\nrl: simpo\n", "its trainer is CPOTrainer"),
    "TRL's, nobody says whose": (HEAD + "beta: 0.05\nmax_prompt_length: 1792\n", "could be DPO's, KTO's or ORPO's"),
    "PPO of TRL": (HEAD + "num_ppo_epochs: 4\n", "reinforcement learning (num_ppo_epochs), a job of several models"),
    "stage of LLaMA-Factory": (HEAD + "finetuning_type: lora\nstage: ppo\n", "TRL 1.16 has no PPO trainer any more"),
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
    "tensor parallel": ("base_model: x\ntensor_parallel_size: 2\n", "not built yet"),
    "megatron": ("distributed_type: MEGATRON_LM\n", "not built yet"),
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


def test_kind_overrides_and_toml_is_read_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("distributed_type: FSDP\nbase_model: x\nfsdp_config: {fsdp_version: 2}\nnum_processes: 8\n")
    code, _, _ = words(path, capsys, "--kind", "accelerate", "--gpus", "H100", "--toml", "-o", str(tmp_path / "plan"))
    assert code == 0
    (tmp_path / "pyproject.toml").write_text((tmp_path / "plan").read_text())
    from gpu_plan.planner.options.config import job_options
    from gpu_plan.planner.options.given.configured import configured

    found = job_options(tmp_path)
    assert found is not None
    job = configured(found)
    assert job.gpus == "8xH100"
    assert job.options == {"strategy": "fsdp", "offload": "none", "precision": "fp32", "stack": "accelerate"}


@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed", "fp16-mixed"])
@pytest.mark.parametrize(
    ("strategy", "offload", "gpus"),
    [
        ("single", "none", "1xH100"),
        ("ddp", "none", "8xH100"),
        ("fsdp", "none", "8xH100"),
        ("fsdp", "all", "2x8xH100"),
        ("fsdp1", "none", "8xH100"),
        ("hsdp", "all", "2x8xH100"),
        ("zero1", "optimizer", "8xH100"),
        ("zero2", "none", "2x8xH100"),
        ("zero3", "none", "8xH100"),
        ("zero3", "all", "8xH100"),
    ],
)
def test_what_is_exported_is_read_back(
    strategy: str, offload: str, gpus: str, precision: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text("from accelerate import Accelerator\nAccelerator().accumulate(model)\n")
    plan = saved(strategy, gpus, micro=4, steps=2, offload=offload, precision=precision)
    hosts = {"hosts": ("a", "b")} if gpus.startswith("2x") else {}
    launch = export(job(plan, script, **hosts), None, engine="accelerate", folder=tmp_path)
    for name, content in launch.files.items():
        (tmp_path / name).write_text(content)
    config = next(name for name in launch.files if name.endswith(".yaml"))
    code, out, err = words(tmp_path / config, capsys, "--json", "--gpus", "H100")
    assert code == 0, err
    found = json.loads(out)
    options = found["options"]
    assert (options["strategy"], options.get("offload", "none")) == (strategy, offload)
    assert options["precision"] == precision
    assert found["gpus"] == gpus
    assert not found["approximated"]
    assert set(found["settings"]) <= {"fsdp.reshard_after_forward", "clip.max_norm"}
    if strategy.startswith("zero"):
        assert found["settings"]["clip.max_norm"] == "0.0", "nobody asked for clipping"
        assert (options["micro-batch"], options["grad-accum"]) == ("4", "2")


RING = """
distributed_type: FSDP
num_processes: 8
fsdp_config: {fsdp_version: 2, fsdp_activation_checkpointing: true, fsdp_activation_checkpointing_offload: true}
parallelism_config:
  parallelism_config_dp_shard_size: 2
  parallelism_config_cp_size: 4
  parallelism_config_cp_comm_strategy: alltoall
"""
ULYSSES = """
distributed_type: DEEPSPEED
num_processes: 8
deepspeed_config: {zero_stage: 3}
parallelism_config:
  parallelism_config_sp_size: 8
  parallelism_config_sp_backend: deepspeed
  parallelism_config_sp_attn_implementation: flash_attention_2
"""


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (RING, ("--strategy fsdp", "--cp 4", "--set cp.rotation=alltoall", "--set checkpoint.offload=true")),
        (ULYSSES, ("--strategy zero3", "--cp 8", "--attention flash")),
    ],
)
def test_ranks_that_share_samples_are_read(
    text: str, wanted: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    code, out, _ = words(path, capsys, "org/model", "--gpus", "H100")
    command = out.strip().splitlines()[-1]
    assert code == 0
    assert [one for one in (*wanted, "8xH100") if one not in command] == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (RING.replace("shard_size: 2", "shard_size: 4"), "x cp_size 4 is 16, and num_processes is 8"),
        (RING.replace("version: 2", "version: 1"), "parallelism_config_cp_size 4 needs fsdp_version 2"),
        (ULYSSES.replace("sp_size", "cp_size"), "parallelism_config_cp_size 8 needs fsdp_version 2"),
    ],
)
def test_ranks_that_cannot_share_samples(
    text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    code, out, err = words(path, capsys, "org/model", "--gpus", "H100")
    assert (code, out) == (2, "")
    assert says in err.splitlines()[-1]


ODD = (None, True, 0, -1, 3, 1e30, float("nan"), float("inf"), 10**400, "auto", "x", "8", [], [1], ["a"], {}, {"a": 1})
MORE = (
    "deepspeed",
    "fsdp",
    "fsdp_config",
    "bf16",
    "optim_args",
    "lora_target_modules",
    "adapter",
    "parallelism_config",
)


def spoilt(table: Mapping[str, object], rng: random.Random) -> dict[str, object]:
    """A table with a few values of other kinds, a few keys gone and a few new ones."""
    found: dict[str, object] = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and rng.random() < 0.5:
            found[key] = spoilt(value, rng)
        elif rng.random() > 0.05:
            found[key] = rng.choice(ODD) if rng.random() < 0.15 else value
    if rng.random() < 0.5:
        found[rng.choice(MORE)] = rng.choice(ODD)
    return found


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
            "gpu-memory-utilization": "0.25", "reference": None, "seq-len": None,
        },
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
    "ORPO of LLaMA-Factory": (HEAD + "finetuning_type: lora\nstage: dpo\npref_loss: orpo\n", {"recipe": "orpo"}),
    "rewards of LLaMA-Factory": (HEAD + "finetuning_type: full\nstage: rm\n", {"recipe": "reward"}),
    "KTO of ms-swift": ("model: x\ntuner_type: lora\nrlhf_type: kto\n", {"recipe": "kto"}),
}  # fmt: skip


@pytest.mark.parametrize("name", PREFERENCES)
def test_a_job_of_several_models_is_a_recipe(tmp_path: Path, name: str) -> None:
    content, expected = PREFERENCES[name]
    found = convert(yaml.safe_load(content), str(tmp_path / "job.yaml"), lambda *_: {})
    options = {said.option: said.value for said in found.options}
    assert {key: options.get(key) for key in expected} == expected
