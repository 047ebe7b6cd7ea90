"""FSDP1 and HSDP jobs that real ranks run: a quick sample (FLAT and LORA), and the rest."""

from gpu_plan.planner.workload.training import Checkpointing, Precision
from tests.support.ranks.case import RankCase

UNEVEN = {"vocab_size": 259}
MIXED = Precision("bf16-mixed")
EACH = {"fsdp.sync_each_batch": "true"}
OWN = {**EACH, "fsdp.use_orig_params": "false"}
"""As verl has it: the optimizer is given the flat parameters."""
REDUCED = {**OWN, "dtype.reduce": "float32"}
"""As verl has it whole: gradients of 16 bits are cast and reduced in 32."""
WIDE = {"hidden_size": 256, "intermediate_size": 512}

FLAT = (
    RankCase(architecture="llama-3", strategy="fsdp1", accumulation=2, changes=UNEVEN),
    RankCase(architecture="llama-3", strategy="fsdp1", precision=MIXED, changes=UNEVEN),
    RankCase(architecture="gpt2", strategy="fsdp1"),
    RankCase(architecture="llama-3", strategy="fsdp1", precision=MIXED, accumulation=2, settings=EACH),
)
MORE_FLAT = (
    *(
        RankCase(architecture=name, strategy="fsdp1", accumulation=accumulation)
        for name in ("qwen2", "mixtral")
        for accumulation in (1, 2)
    ),
    RankCase(architecture="llama-3", strategy="fsdp1", checkpointing=Checkpointing.FULL),
    RankCase(architecture="llama-3", strategy="fsdp1", precision=MIXED, accumulation=2),
    RankCase(architecture="llama-3", strategy="fsdp1", precision=Precision("bf16")),
    RankCase(architecture="llama-3", strategy="fsdp1", precision=MIXED, accumulation=2, settings=OWN),
    RankCase(architecture="qwen2", strategy="fsdp1", settings=OWN, changes=UNEVEN),
    RankCase(architecture="llama-3", strategy="fsdp1", precision=MIXED, accumulation=2, settings=REDUCED),
    RankCase(architecture="qwen2", strategy="fsdp1", precision=MIXED, settings={"dtype.reduce": "float32"}),
)
LORA = (
    RankCase(architecture="llama-3", strategy="fsdp1", checkpointing=Checkpointing.FULL, lora_rank=4),
    RankCase(architecture="llama-3", strategy="fsdp1", precision=MIXED, lora_rank=4),
    RankCase(architecture="llama-3", strategy="fsdp1", precision=MIXED, lora_rank=4, quantised=True, changes=WIDE),
)
"""Adapters as units of their own inside frozen ones, as peft's policy wraps them."""
MORE_LORA = (
    RankCase(architecture="llama-3", strategy="fsdp1", lora_rank=4),
    RankCase(architecture="llama-3", strategy="fsdp1", precision=MIXED, checkpointing=Checkpointing.FULL, lora_rank=4),
    RankCase(architecture="llama-3", strategy="fsdp1", precision=MIXED, accumulation=2, lora_rank=4),
    RankCase(
        architecture="llama-3",
        strategy="fsdp1",
        checkpointing=Checkpointing.FULL,
        lora_rank=4,
        quantised=True,
        changes=WIDE,
    ),
    *(
        RankCase(architecture=name, strategy="fsdp1", precision=precision, checkpointing=checkpointing, lora_rank=4)
        for name in ("qwen2", "gemma-2")
        for precision, checkpointing in ((MIXED, Checkpointing.FULL), (Precision("fp32"), Checkpointing.NONE))
    ),
    # In fp32: a CPU's autocast runs layer norms in 16 bits, CUDA's in 32.
    RankCase(architecture="gpt2", strategy="fsdp1", checkpointing=Checkpointing.FULL, lora_rank=4),
    RankCase(architecture="llama-3", strategy="fsdp1", precision=Precision("bf16"), lora_rank=4),
    *(
        RankCase(
            architecture="llama-3",
            strategy="fsdp1",
            checkpointing=Checkpointing.FULL,
            lora_rank=4,
            lora_targets=("q_proj", projection),
        )
        for projection in ("up_proj", "down_proj")
    ),
    RankCase(
        architecture="llama-3",
        strategy="fsdp1",
        precision=MIXED,
        accumulation=2,
        checkpointing=Checkpointing.FULL,
        lora_rank=4,
    ),
)
HYBRID = (
    RankCase(architecture="llama-3", strategy="hsdp", precision=MIXED, changes=UNEVEN),
    RankCase(architecture="llama-3", strategy="hsdp", accumulation=2),
    RankCase(architecture="qwen2", strategy="hsdp", precision=MIXED, accumulation=2),
)
