"""How a job of Megatron-core shares a model out, recomputes it, and which kernels it runs."""

from dataclasses import replace
from typing import Literal

from gpu_plan.planner.megatron.losses import CrossEntropy
from gpu_plan.planner.plain.values import dataclass

PARTS = ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts")
"""What selective recomputation knows (transformer_config.py: TransformerConfig.recompute_modules)."""
Attention = Literal["fused", "flash", "unfused", "local"]
"""Transformer Engine's backends (`--attention-backend`), or Megatron-core's own DotProductAttention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Degrees and switches of one job. Names in docstrings are arguments of Megatron-LM."""

    tensor: int = 1
    pipeline: int = 1
    virtual: int = 1
    """Stages on each rank (`--num-virtual-stages-per-pipeline-rank`)."""
    group: int | None = None
    """Micro batches that go through a rank's stage one after the other, with several stages a rank
    (`--microbatch-group-size-per-virtual-pipeline-stage`); None: as many as pipeline ranks."""
    context: int = 1
    context_comm: Literal["p2p", "a2a"] = "p2p"
    """How ranks that share tokens get the others' keys and values (`--cp-comm-type`): round the ranks, or all tokens of
    a share of the heads."""
    expert: int = 1
    expert_tensor: int = 1
    """Ranks that hold one expert together (`--expert-tensor-parallel-size`)."""
    sequence: bool = False
    """Whether what tensor parallel ranks would hold alike is shared out by tokens (`--sequence-parallel`)."""
    recompute: Literal["none", "selective", "full"] = "none"
    recompute_modules: tuple[str, ...] = ("core_attn",)
    """Parts of a layer that are run again where `recompute` is selective."""
    recompute_method: Literal["uniform", "block"] = "uniform"
    recompute_layers: int = 1
    """Layers of a chunk (uniform), or of a stage that are recomputed (block)."""
    attention: Attention = "fused"
    local: bool = False
    """Whether layers are Megatron-core's own (`--transformer-impl local`)."""
    fused: bool = True
    """Whether the local layers' softmax is Megatron-core's kernel (no `--no-masked-softmax-fusion`)."""
    fused_gradients: bool = True
    """Whether a weight's gradient is added to its buffer by the product itself
    (no `--no-gradient-accumulation-fusion`)."""
    float8: Literal["none", "delayed", "tensorwise"] = "none"
    """`--fp8-recipe` of linear layers in float8 (`--fp8-format hybrid`)."""
    float8_stored: bool = False
    """Whether their weights are stored and gathered so (`--fp8-param-gather`)."""
    float8_twice: bool = False
    """Whether an operand is kept in both orders: before Blackwell products take it row by row."""
    cross_entropy: CrossEntropy = "unfused"
    """`--cross-entropy-loss-fusion`, `--cross-entropy-fusion-impl`; or one that no argument asks for."""
    hidden_dropout: float = 0.0
    attention_dropout: float = 0.0
    fused_rotary: bool = True
    fused_activation: bool = True
    """Whether a dense layer's gate is one kernel (no `--no-bias-swiglu-fusion`)."""
    deallocates: bool = True
    """Whether what a stage has sent on is emptied at once: Megatron-LM asks for it, Megatron-core alone does not
    (`deallocate_pipeline_outputs`)."""
    attention_mask: bool = False
    """Whether the loader makes a mask of every sample (no `--no-create-attention-mask-in-dataloader`)."""
    capacity: float | None = None
    """Tokens that an expert takes, of an even share, padded to it (`--moe-expert-capacity-factor`,
    `--moe-pad-expert-input-to-capacity`); None: as many as come."""
    load: float = 1.0
    """Rows that come to a rank's experts, of an even share: data chooses, no argument does."""
    dispatcher: Literal["alltoall", "allgather", "flex"] = "alltoall"
    """How tokens get to their experts (`--moe-token-dispatcher-type`)."""
    wide_router: bool = False
    """Whether the router computes in fp32 (`--moe-router-dtype fp32`)."""
    permute_fusion: bool = True
    grouped: bool = True
    """Whether a rank's experts are one grouped product (`--moe-grouped-gemm`)."""
    deterministic: bool = False
    first_layers: int | None = None
    """Of the first pipeline rank (`--decoder-first-pipeline-num-layers`); None: as many as the others."""
    last_layers: int | None = None
    embedding_counts: bool = False
    """Whether the first stage has a layer less (`--account-for-embedding-in-pipeline-split`)."""
    loss_counts: bool = False
    """Whether the last stage has (`--account-for-loss-in-pipeline-split`)."""

    @property
    def stages(self) -> int:
        return self.pipeline * self.virtual

    @property
    def group_size(self) -> int:
        """Micro batches of a group of the interleaved schedule."""
        return self.group or self.pipeline

    @property
    def copy_ranks(self) -> int:
        """Ranks that compute the same samples."""
        return self.tensor * self.pipeline * self.context

    @property
    def words(self) -> str:
        """`TP 2 × PP 4 (2 stages a rank) × EP 8`; empty where nothing is shared out."""
        each = f" ({self.virtual} stages a rank)" if self.virtual > 1 else ""
        names = (
            ("TP", self.tensor, ""),
            ("PP", self.pipeline, each),
            ("CP", self.context, ""),
            ("EP", self.expert, ""),
        )
        return " × ".join(f"{name} {degree}{more}" for name, degree, more in names if degree > 1)

    def runs_again(self, part: str) -> bool:
        """Whether a part of a layer is run again in backward (`--recompute-modules`)."""
        return self.recompute == "selective" and part in self.recompute_modules

    def own(self) -> "Layout":
        """What of it one rank's own step depends on."""
        return replace(
            self,
            pipeline=1,
            virtual=1,
            deallocates=True,
            group=None,
            first_layers=None,
            last_layers=None,
            embedding_counts=False,
            loss_counts=False,
        )

    def key(self) -> str:
        """Stable text that names it in caches."""
        return repr(self)
