"""Jobs of ranks that compute one copy of the model together, as transformers itself spreads it."""

from gpu_plan.planner.workload.training import Checkpointing, Optimizer, Precision
from tests.support.ranks.case import RankCase


def _two(architecture: str, **given: object) -> RankCase:
    return RankCase(architecture=architecture, strategy="tp", tensor_parallel=2, **given)  # type: ignore[arg-type]


def _four(architecture: str, **given: object) -> RankCase:
    return RankCase(architecture=architecture, strategy="fsdp_tp", tensor_parallel=2, **given)  # type: ignore[arg-type]


TWO_RANKS = (
    _two("llama-3"),
    _two("llama-3", accumulation=2),
    _two("llama-3", precision=Precision("bf16")),
    _two("llama-3", checkpointing=Checkpointing.FULL),
    _two("llama-3", optimizer=Optimizer("adamw-forloop")),
    _two("llama-3", changes={"vocab_size": 259}),
    *(_two(name) for name in ("llama-2", "qwen2", "gemma-2", "mixtral", "qwen3-moe", "olmoe", "deepseek-v3")),
)
CUT_OF_TWO = (
    _two("llama-3", cuts_sequence=True),
    _two("llama-3", cuts_sequence=True, checkpointing=Checkpointing.FULL),
    _two("llama-3", cuts_sequence=True, precision=Precision("bf16")),
    _two("qwen2", cuts_sequence=True),
    _two("qwen3", cuts_sequence=True),
)
"""As torchtitan spreads a model of transformers."""
CUT_OF_FOUR = (
    _four("llama-3", cuts_sequence=True),
    _four("llama-3", cuts_sequence=True, precision=Precision("bf16-mixed")),
    _four("llama-3", cuts_sequence=True, checkpointing=Checkpointing.FULL, accumulation=2),
)
TIED_FOUR = (_four("qwen2"), _four("qwen2", accumulation=2))
EXPERTS_OF_TWO = (
    RankCase(architecture="mixtral", strategy="fsdp_ep", expert_parallel=2),
    RankCase(architecture="qwen3-moe", strategy="fsdp_ep", expert_parallel=2),
    RankCase(architecture="deepseek-v3", strategy="fsdp_ep", expert_parallel=2),
    RankCase(architecture="mixtral", strategy="fsdp_ep", expert_parallel=2, accumulation=2),
    RankCase(architecture="mixtral", strategy="fsdp_ep", expert_parallel=2, checkpointing=Checkpointing.FULL),
    _two("qwen3-moe", expert_parallel=2),
    _two("mixtral", expert_parallel=2),
)
EXPERTS_OF_FOUR = (
    RankCase(architecture="mixtral", strategy="fsdp_ep", expert_parallel=2),
    RankCase(architecture="qwen3-moe", strategy="fsdp_ep", expert_parallel=4),
    _four("qwen3-moe", expert_parallel=2),
    _four("qwen3-moe", expert_parallel=4),
)
_ODD = {"vocab_size": 259}
"""What no number of ranks here divides."""
UNEVEN = {
    2: (
        _two("llama-3", changes=_ODD),
        RankCase(architecture="llama-3", changes=_ODD),
        RankCase(architecture="mixtral", strategy="fsdp_ep", expert_parallel=2, crowded=True),
        RankCase(architecture="qwen3-moe", strategy="fsdp_ep", expert_parallel=2, crowded=True),
    ),
    4: (RankCase(architecture="llama-3", changes=_ODD), _four("llama-3", changes=_ODD)),
}
"""Ranks that are not alike, by the number of ranks; where tokens crowd, the first is the one that is planned."""
EIGHT_RANKS = (RankCase(architecture="llama-3", strategy="hsdp_tp", tensor_parallel=2),)
FOUR_RANKS = (
    _four("llama-3"),
    _four("llama-3", checkpointing=Checkpointing.FULL),
    _four("llama-3", accumulation=2),
    _four("mixtral"),
    _four("llama-3", precision=Precision("bf16-mixed")),
)
