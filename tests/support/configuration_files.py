"""Files of other tools as their users write them, what `plan from-config` makes of them, and spoilt ones."""

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpu_plan.cli import main

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
        " --lora-targets all-linear --stack axolotl --set checkpoint.reentrant=true --set lora.dropout=0.05"
        " --set quant.double=true",
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


HEAD = "model_name_or_path: m\noutput_dir: o\nlearning_rate: 1e-5\n"
"""What every Trainer's file has, and the files of many other tools with it."""


def words(path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str, str]:
    code = main(["from-config", str(path), *more])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return code, captured.out, captured.err


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
