"""Jobs of ranks that compute one copy of the model together, as transformers itself spreads it."""

from gpu_plan.planner.workload.training import Checkpointing, Optimizer, Precision
from tests.support.ranks.case import RankCase
from tests.support.ranks.own_defaults import OWN


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


def _experts(architecture: str, ranks: int = 2, **given: object) -> RankCase:
    return RankCase(architecture=architecture, strategy="fsdp_ep", expert_parallel=ranks, **given)  # type: ignore[arg-type]


_DENSE = ("gemma-3", "mistral", "qwen3", "phi-3", "phi-2", "olmo-2", "glm-4", "granite-3", "smollm-3", "starcoder-2")
_WITH_EXPERTS = ("gpt-oss", "glm-4-moe", "qwen2-moe", "phi-moe", "minimax-m2", "qwen3-next")
CLASSES_OF_TWO = (
    *map(_two, (*_DENSE, "command-r", "gpt-neox", *_WITH_EXPERTS)),
    *map(_experts, (*_WITH_EXPERTS, "jamba")),
    _experts("mixtral", changes={"num_local_experts": 8}),
)
"""Further classes that say how they are split; Mixtral with experts enough that its peak lies in their backward."""
CLASSES_OF_FOUR = (
    *map(_four, ("phi-2", "gpt-neox", "command-r", "gemma-3", "olmo-2", "glm-4-moe", "qwen3-next", "gpt-oss")),
    _experts("gpt-oss", 4),
    _experts("qwen3-moe", 4, crowded=True),
)
_OWN_EXPERTS = tuple(name for name, one in OWN.items() if {"num_experts_per_tok", "moe_k"} & one.overrides.keys())
OWN_OF_TWO = (*map(_two, OWN), *map(_experts, _OWN_EXPERTS))
"""Classes from their own defaults, which no catalog has."""
OWN_OF_FOUR = (*map(_four, ("cohere-2", "seed-oss", "hy-v3")), _experts("granite-moe", 4))
TIED_FOUR = (_four("qwen2"), _four("qwen2", accumulation=2))
EXPERTS_OF_TWO = (
    RankCase(architecture="mixtral", strategy="fsdp_ep", expert_parallel=2),
    RankCase(architecture="qwen3-moe", strategy="fsdp_ep", expert_parallel=2),
    RankCase(architecture="deepseek-v3", strategy="fsdp_ep", expert_parallel=2),
    RankCase(architecture="mixtral", strategy="fsdp_ep", expert_parallel=2, accumulation=2),
    RankCase(architecture="mixtral", strategy="fsdp_ep", expert_parallel=2, checkpointing=Checkpointing.FULL),
    _two("qwen3-moe", expert_parallel=2),
    _two("mixtral", expert_parallel=2),
    *(_experts(name, precision=Precision("bf16-mixed")) for name in ("mixtral", "qwen3-moe", "gpt-oss")),
    _experts("mixtral", precision=Precision("bf16-mixed"), checkpointing=Checkpointing.FULL),
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
WORLDS: dict[int, tuple[RankCase, ...]] = {
    2: TWO_RANKS
    + EXPERTS_OF_TWO
    + CLASSES_OF_TWO
    + OWN_OF_TWO
    + CUT_OF_TWO
    + UNEVEN[2][1:],  # whose first is one of TWO_RANKS
    4: FOUR_RANKS + TIED_FOUR + EXPERTS_OF_FOUR + CLASSES_OF_FOUR + OWN_OF_FOUR + CUT_OF_FOUR + UNEVEN[4],
    8: EIGHT_RANKS,
}
"""All of them, by the number of ranks."""
