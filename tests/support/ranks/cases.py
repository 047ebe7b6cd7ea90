"""Jobs that real ranks run: a quick sample, and the rest."""

from gpu_plan.planner.workload.training import Checkpointing, Optimizer, Precision
from tests.accuracy.architectures import ARCHITECTURES
from tests.support.ranks.case import RankCase

FP32, MIXED, PURE = Precision("fp32"), Precision("bf16-mixed"), Precision("bf16")
UNEVEN = {"vocab_size": 259}
"""Rows that neither 2 nor 4 ranks share evenly."""
BUCKETS = {"vocab_size": 16_000}
"""Enough gradients for DDP to make two buckets."""
VIEWS = {"ddp.gradient_as_bucket_view": "true"}
EACH = {"fsdp.sync_each_batch": "true"}
REDUCE_FP32 = {"dtype.reduce": "float32"}

SAMPLE = (
    RankCase(architecture="llama-3", strategy="single", optimizer=Optimizer("adamw-forloop")),
    RankCase(architecture="llama-3", strategy="ddp", changes=BUCKETS),
    RankCase(architecture="gpt2", strategy="ddp", accumulation=2),
    RankCase(architecture="llama-3", accumulation=2, changes=UNEVEN),
    RankCase(architecture="llama-3", precision=MIXED, changes=UNEVEN),
    RankCase(architecture="llama-3", precision=MIXED, changes=UNEVEN, settings=REDUCE_FP32),
    RankCase(architecture="llama-3", precision=MIXED, accumulation=2, changes=UNEVEN, settings=EACH),
    RankCase(architecture="mixtral", optimizer=Optimizer("adamw-forloop")),
    RankCase(architecture="llama-3", accumulation=2, checkpointing=Checkpointing.SELECTIVE),
    RankCase(architecture="llama-3", strategy="ddp", accumulation=2, checkpointing=Checkpointing.FULL, lora_rank=4),
    RankCase(architecture="llama-3", precision=MIXED, lora_rank=4),
)
"""Run by every test run, on two ranks, in one launch: what starts a rank costs more than what a case does."""

NOT_SHARDED_BY_ACCELERATE = ("t5", "bert", "esm-2", "vit")
"""accelerate 1.15 with torch 2.13 fails to wrap these for FSDP2: T5 shares a weight with a third module; the others'
classes not to split hold embeddings that are sharded on their own, or are not in the model."""
UNUSED_PARAMETERS = ("bert", "esm-2")
"""Some of their parameters get no gradient, which DDP refuses unless told to look for them."""

_MATRIX = tuple(
    RankCase(architecture=name, strategy=strategy, accumulation=accumulation, precision=precision, changes=changes)
    for name, changes in (("llama-3", UNEVEN), ("qwen2", {}), ("gpt2", UNEVEN), ("mixtral", {}), ("t5", {}))
    for strategy, precision in (("single", FP32), ("ddp", FP32), ("fsdp", FP32), ("fsdp", MIXED))
    for accumulation in (1, 2)
    if not (strategy == "fsdp" and name in NOT_SHARDED_BY_ACCELERATE)
)
_OTHERS = (
    RankCase(architecture="llama-3", accumulation=2, changes=UNEVEN, settings=EACH),
    RankCase(architecture="qwen2", precision=MIXED, accumulation=2, settings={**REDUCE_FP32, **EACH}),
    RankCase(architecture="llama-3", strategy="ddp", changes=BUCKETS, settings=VIEWS),
    RankCase(architecture="gpt2", strategy="ddp", accumulation=2, settings=VIEWS),
    RankCase(architecture="gpt2", changes=UNEVEN),
    RankCase(architecture="llama-3", precision=MIXED, accumulation=2, changes=UNEVEN, settings=REDUCE_FP32),
    *(RankCase(architecture="llama-3", strategy=s, optimizer=Optimizer("adamw-forloop")) for s in ("ddp", "fsdp")),
    *(RankCase(architecture="llama-3", strategy=s, precision=PURE, changes=UNEVEN) for s in ("ddp", "fsdp")),
    *(RankCase(architecture="llama-3", strategy=s, checkpointing=Checkpointing.FULL) for s in ("ddp", "fsdp")),
    RankCase(architecture="llama-3", precision=MIXED, accumulation=2, checkpointing=Checkpointing.FULL),
    RankCase(architecture="llama-3", strategy="ddp", checkpointing=Checkpointing.SELECTIVE),
    RankCase(architecture="gpt2", strategy="ddp", changes={"vocab_size": 16_000}),
)
_EVERY_ARCHITECTURE = tuple(
    RankCase(architecture=name, strategy=strategy)
    for name in ARCHITECTURES
    for strategy in ("ddp", "fsdp")
    if not (strategy == "fsdp" and name in NOT_SHARDED_BY_ACCELERATE)
    and not (strategy == "ddp" and name in UNUSED_PARAMETERS)
)
_LORA = tuple(
    RankCase(
        architecture="llama-3", strategy=strategy, accumulation=accumulation, checkpointing=checkpointing, lora_rank=4
    )
    for strategy, accumulation, checkpointing in (
        ("ddp", 1, Checkpointing.NONE),
        ("fsdp", 1, Checkpointing.NONE),
        ("fsdp", 2, Checkpointing.NONE),
        ("fsdp", 1, Checkpointing.FULL),
    )
)
_QUANTISED = tuple(
    RankCase(
        architecture="llama-3",
        strategy="fsdp",
        precision=precision,
        accumulation=accumulation,
        checkpointing=checkpointing,
        lora_rank=4,
        quantised=True,
        changes={"hidden_size": 256, "intermediate_size": 512},
    )
    for precision, accumulation, checkpointing in (
        (FP32, 1, Checkpointing.NONE),
        (MIXED, 1, Checkpointing.NONE),
        (FP32, 2, Checkpointing.FULL),
    )
)
"""bitsandbytes' 4-bit weights stored in the type of the rest, which fully_shard shards with it."""
_LAYERS_NAMED = tuple(
    RankCase(architecture=name, layers=(layer,))
    for name, layer in (("bert", "BertLayer"), ("vit", "ViTLayer"), ("esm-2", "EsmLayer"))
)
_TWO = (*_MATRIX, *_OTHERS, *_LORA, *_QUANTISED, *_EVERY_ARCHITECTURE, *_LAYERS_NAMED)
TWO_RANKS = tuple({case.label(): case for case in _TWO}.values())
"""The rest on two ranks."""

FOUR_RANKS = tuple(
    RankCase(architecture=name, strategy=strategy, precision=precision, accumulation=accumulation, changes=changes)
    for name, changes in (("llama-3", UNEVEN), ("qwen2", UNEVEN), ("mixtral", {}))
    for strategy, precision, accumulation in (("ddp", FP32, 1), ("fsdp", FP32, 1), ("fsdp", MIXED, 2))
)

REFUSED = (
    *(RankCase(architecture=name, strategy="fsdp") for name in NOT_SHARDED_BY_ACCELERATE),
    *(RankCase(architecture=name, strategy="ddp") for name in UNUSED_PARAMETERS),
    RankCase(architecture="bert", strategy="single"),
)
"""What the real code refuses on two ranks; the last, on one device, runs."""
