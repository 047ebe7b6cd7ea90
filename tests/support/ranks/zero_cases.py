"""Jobs that real DeepSpeed ranks run: a quick sample, and the rest.

Buckets are small, so that a tiny model fills several; DeepSpeed's own default would hold it whole.
"""

from gpu_plan.planner.workload.training import Checkpointing, Precision
from tests.accuracy.architectures import ARCHITECTURES
from tests.support.ranks.case import RankCase

FP32, MIXED = Precision("fp32"), Precision("bf16-mixed")
BUCKET = {"zero.reduce_bucket_size": "50000"}
UNEVEN = {"vocab_size": 259}
"""Rows that ranks do not share evenly."""
PARTED = {**BUCKET, "zero.param_persistence_threshold": "0"}
"""Every weight is partitioned: tiny ones would all stay whole."""

SAMPLE = (
    RankCase(architecture="llama-3", strategy="zero1", changes=UNEVEN, settings=BUCKET, accumulation=2),
    RankCase(architecture="llama-3", strategy="zero2", precision=MIXED, changes=UNEVEN, settings=BUCKET),
    RankCase(architecture="mixtral", strategy="zero2", settings=BUCKET),
    RankCase(architecture="gpt2", strategy="zero3", changes=UNEVEN, settings=BUCKET, accumulation=2),
    RankCase(architecture="mixtral", strategy="zero3", settings=PARTED),
)
"""Run by every test run, on two ranks."""

_MATRIX = tuple(
    RankCase(
        architecture=name,
        strategy=strategy,
        settings=BUCKET,
        precision=precision,
        accumulation=accumulation,
        changes=changes,
    )
    for name, changes in (("llama-3", UNEVEN), ("gpt2", UNEVEN), ("qwen2", {}), ("mixtral", {}))
    for strategy in ("zero1", "zero2", "zero3")
    for precision in (FP32, MIXED)
    for accumulation in (1, 2)
)
_OTHERS = (
    *(
        RankCase(architecture=name, strategy="zero3", settings=PARTED, precision=precision)
        for name in ("llama-3", "gpt2", "mixtral")
        for precision in (FP32, MIXED)
    ),
    *(RankCase(architecture="llama-3", strategy=f"zero{stage}") for stage in (1, 2, 3)),
    *(
        RankCase(architecture="llama-3", strategy=f"zero{stage}", settings=PARTED, checkpointing=Checkpointing.FULL)
        for stage in (1, 2, 3)
    ),
    RankCase(architecture="mixtral", strategy="zero3", settings=PARTED, checkpointing=Checkpointing.FULL),
    RankCase(
        architecture="llama-3",
        strategy="zero3",
        settings={**PARTED, "zero.max_reuse_distance": "0", "zero.prefetch_bucket_size": "0"},
        checkpointing=Checkpointing.FULL,
    ),
    RankCase(architecture="llama-3", strategy="zero3", settings={**PARTED, "zero.prefetch_bucket_size": "10000"}),
    RankCase(architecture="llama-3", strategy="zero3", settings={**PARTED, "zero.max_live_parameters": "60000"}),
    RankCase(architecture="llama-3", strategy="zero3", settings={**PARTED, "zero.max_reuse_distance": "20000"}),
    RankCase(architecture="llama-3", strategy="zero3", settings={**PARTED, "zero.sub_group_size": "30000"}),
    RankCase(architecture="qwen2", strategy="zero3", settings={**PARTED, "zero.overlap_comm": "false"}),
    *(RankCase(architecture=name, strategy="zero3", settings=PARTED) for name in ("t5", "esm-2", "qwen3-next", "vit")),
)
TWO_RANKS = tuple({case.label(): case for case in (*_MATRIX, *_OTHERS)}.values())
"""The rest on two ranks."""

FOUR_RANKS = tuple(
    RankCase(architecture=name, strategy=strategy, settings=settings, precision=precision, accumulation=2)
    for name in ("llama-3", "mixtral")
    for strategy, precision, settings in (("zero1", FP32, BUCKET), ("zero2", MIXED, BUCKET), ("zero3", FP32, PARTED))
)

QLORA = tuple(
    RankCase(
        architecture="llama-3",
        strategy="zero3",
        precision=precision,
        accumulation=accumulation,
        settings=PARTED,
        lora_rank=4,
        quantised=True,
        changes={"hidden_size": 256, "intermediate_size": 512},
    )
    for precision, accumulation in ((MIXED, 1), (MIXED, 2), (FP32, 1))
)
"""NF4 bases, packed in the type of the rest, which deepspeed.initialize partitions."""

ADAPTED = tuple(
    RankCase(
        architecture="llama-3",
        strategy="zero3",
        precision=precision,
        settings=PARTED,
        lora_rank=4,
        lora_targets=("q_proj", "v_proj"),
    )
    for precision in (FP32, MIXED)
)
"""A frozen base that deepspeed.zero.Init has partitioned, and peft's adapters made after it."""

EVERY_ARCHITECTURE = tuple(
    RankCase(architecture=name, strategy=strategy, settings=PARTED if strategy == "zero3" else BUCKET)
    for name in ARCHITECTURES
    for strategy in ("zero1", "zero2", "zero3")
)
"""Run by the benchmark, which shows where they part."""
