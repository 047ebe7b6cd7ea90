"""Jobs of families and options that no other list has, written down before any of them was run."""

from gpu_plan.planner.workload.training import Attention, Checkpointing, Optimizer, Precision
from tests.support.ranks.case import RankCase
from tests.support.ranks.zero_cases import BUCKET, PARTED

MIXED, PURE = Precision("bf16-mixed"), Precision("bf16")
FULL, SELECTIVE = Checkpointing.FULL, Checkpointing.SELECTIVE
MOMENTUM = Optimizer("sgd-momentum")

TWO_RANKS = (
    RankCase(architecture="phi-3", precision=MIXED, accumulation=2, checkpointing=SELECTIVE),
    RankCase(architecture="gpt-oss", precision=PURE, checkpointing=FULL, attention=Attention.EAGER),
    RankCase(architecture="bloom", optimizer=MOMENTUM),
    RankCase(architecture="falcon", strategy="ddp", accumulation=2, lora_rank=4),
    RankCase(architecture="bart", strategy="ddp"),
    RankCase(architecture="starcoder-2", strategy="fsdp1", precision=MIXED),
    RankCase(architecture="granite-3", lora_rank=4, lora_targets=("q_proj", "v_proj")),
    RankCase(architecture="modernbert", strategy="zero1", precision=MIXED, settings=BUCKET),
    RankCase(architecture="opt", strategy="zero2", optimizer=MOMENTUM, accumulation=2, settings=BUCKET),
    RankCase(architecture="phi-3", strategy="zero2", lora_rank=4, lora_targets=("qkv_proj",), settings=BUCKET),
    RankCase(architecture="qwen3", strategy="zero3", lora_rank=4, lora_targets=("q_proj", "v_proj"), settings=PARTED),
    RankCase(architecture="command-r", strategy="zero3", accumulation=2, checkpointing=FULL, settings=PARTED),
    RankCase(architecture="falcon", strategy="zero3", precision=MIXED, settings=PARTED),
)
FOUR_RANKS = (
    RankCase(architecture="glm-4", settings={"fsdp.reshard_after_forward": "false"}),
    RankCase(architecture="olmo-2", strategy="hsdp", precision=MIXED, accumulation=2),
)
