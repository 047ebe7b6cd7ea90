"""Jobs of families that no other list has, written down before any of them was run."""

from gpu_plan.planner.workload.training import Checkpointing, Precision
from tests.support.ranks.case import RankCase
from tests.support.ranks.zero_cases import BUCKET, PARTED

MIXED, PURE = Precision("bf16-mixed"), Precision("bf16")
FULL, SELECTIVE = Checkpointing.FULL, Checkpointing.SELECTIVE

TWO_RANKS = (
    RankCase(architecture="gptj", strategy="ddp"),
    RankCase(architecture="codegen", accumulation=2),
    RankCase(architecture="gpt-bigcode", strategy="ddp", lora_rank=4, lora_targets=("c_attn",)),
    RankCase(architecture="gpt-neo", strategy="fsdp1"),
    RankCase(architecture="mpt", strategy="fsdp1", accumulation=2),
    RankCase(architecture="stablelm", precision=PURE),
    RankCase(architecture="persimmon", strategy="ddp", accumulation=2),
    RankCase(architecture="nemotron", checkpointing=FULL),
    RankCase(architecture="olmo", strategy="fsdp1", precision=MIXED),
    RankCase(architecture="olmo-3", lora_rank=4, lora_targets=("q_proj", "v_proj")),
    RankCase(architecture="helium", precision=MIXED, accumulation=2),
    RankCase(architecture="xglm", strategy="ddp"),
    RankCase(architecture="cohere-2", precision=MIXED, checkpointing=SELECTIVE),
    RankCase(architecture="exaone-4", strategy="fsdp1", lora_rank=4, lora_targets=("q_proj", "v_proj")),
    RankCase(architecture="arcee", strategy="ddp", lora_rank=4, lora_targets=("up_proj",), accumulation=2),
    RankCase(architecture="apertus"),
    RankCase(architecture="seed-oss", checkpointing=FULL, precision=PURE),
    RankCase(architecture="bitnet", strategy="ddp"),
    RankCase(architecture="diffllama"),
    RankCase(architecture="granitemoe", accumulation=2),
    RankCase(architecture="deepseek-v2", strategy="fsdp1"),
    RankCase(architecture="falcon-mamba"),
    RankCase(architecture="mamba-2", strategy="ddp"),
    RankCase(architecture="rwkv", strategy="ddp"),
    RankCase(architecture="recurrentgemma"),
    RankCase(architecture="lfm-2", strategy="ddp", accumulation=2),
    RankCase(architecture="roberta", strategy="ddp"),
    RankCase(architecture="electra", strategy="fsdp1"),
    RankCase(architecture="distilbert", strategy="ddp", accumulation=2),
    RankCase(architecture="ernie-4.5", strategy="zero1", settings=BUCKET),
    RankCase(architecture="hunyuan", strategy="zero2", precision=MIXED, settings=BUCKET),
    RankCase(architecture="codegen", strategy="zero3", settings=PARTED),
    RankCase(architecture="gpt-bigcode", strategy="zero3", accumulation=2, settings=PARTED),
    RankCase(architecture="mpt", strategy="zero3", checkpointing=FULL, settings=PARTED),
    RankCase(architecture="granitemoe", strategy="zero3", settings=PARTED),
    RankCase(architecture="deepseek-v2", strategy="zero3", settings=PARTED),
    RankCase(architecture="lfm-2", strategy="zero3", settings=PARTED),
    RankCase(architecture="xlm-roberta", strategy="zero3", precision=MIXED, settings=PARTED),
    RankCase(architecture="pegasus", strategy="zero3", settings=PARTED),
    RankCase(architecture="albert", strategy="zero3", settings=PARTED),
)

REFUSED = tuple(RankCase(architecture=name) for name in ("albert", "deberta-v2", "pegasus", "bart"))
"""A parameter is shared between groups that accelerate makes, which torch 2.13 does not have."""
