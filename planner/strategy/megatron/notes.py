"""What a Megatron-core plan does not take, and what it rests on."""

from gpu_plan.planner.memory.optimizer.steps import LocalTensor, state_bytes
from gpu_plan.planner.strategy.base import RankContext
from gpu_plan.planner.strategy.traits import Offload


def refuses_job(context: RankContext) -> str | None:
    """Why a job is not planned so, in one line; None where it is."""
    if context.capability is None:
        return "Megatron-core's kernels are CUDA's: plan for GPUs"
    if context.peft.adapts:
        return "adapters under Megatron-core are not in this version"
    if context.precision.compute_dtype == "float32":
        return "Megatron-core is planned in 16 bits (its --bf16 or --fp16): give --precision bf16-mixed"
    if context.offload is not Offload.NONE:
        return "offload under Megatron-core is not in this version"
    if not _has_moments(context):
        return f"Megatron-core is planned with Transformer Engine's FusedAdam: drop --optimizer {context.optimizer}"
    settings = dict(context.settings)
    if not context.precision.is_float8:
        asked = next((key for key in ("megatron.fp8_recipe", "megatron.fp8_params") if key in settings), None)
        if asked is not None:
            return f"--set {asked} is about products in float8: add --precision fp8-mixed"
    if "megatron.moments_dtype" in settings and settings.get("megatron.precision_aware") != "true":
        return "--set megatron.moments_dtype needs --set megatron.precision_aware=true"
    if settings.get("megatron.grad_dtype") == "bfloat16" and context.precision.compute_dtype == "float16":
        return "--set megatron.grad_dtype=bfloat16 is about bf16 weights: drop it, or give --precision bf16-mixed"
    return None


def notes_of(context: RankContext) -> tuple[str, ...]:
    """How it is run."""
    assert context.part is not None
    layout = context.part.layout
    notes = [
        "the model is Megatron-core's GPTModel, which Megatron-LM or Megatron-Bridge runs: plan export PLAN --to"
        " megatron-lm or megatron-bridge writes what they take; a script's own loop is not run so",
        f"read in Megatron-LM of August 2026 and Transformer Engine 2.11: attention {layout.attention}, cross entropy"
        f" {layout.cross_entropy}, gradients {_GRADIENTS[layout.fused_gradients]}",
    ]
    if layout.cross_entropy.startswith("verl"):
        notes.append(
            "the loss is that of verl's actor, which verl's own workers run; commands and files for Megatron-LM have"
            " its own cross entropy"
        )
    if layout.float8 != "none":
        stored = "stored in float8" if layout.float8_stored else "kept in bf16, and in float8 beside"
        orders = "in both orders, as products want them before Blackwell" if layout.float8_twice else "once"
        notes.append(
            f"linear layers compute in float8 ({layout.float8} scaling, hybrid), their weights {stored}, {orders};"
            " attention, embedding and head stay in bf16"
        )
    if context.part.model.experts is not None and layout.capacity is None:
        notes.append(
            "tokens are counted as if every expert were chosen equally often: a rank whose experts are chosen more"
            " often holds as much more of them (--set megatron.expert_load=1.25 plans one with a quarter more)"
            if layout.load == 1
            else f"a rank's experts are counted with {layout.load:g} of an even share of the tokens, as was asked"
        )
    if context.part.model.next_tokens:
        notes.append(
            "multi-token prediction is on, as the model's configuration has it: the last stage holds"
            f" {context.part.model.next_tokens} layer more, a second embedding and the logits of a second head;"
            " --set megatron.mtp_layers=0 leaves it out"
        )
    per_node = context.world_size // context.nodes
    if layout.tensor > per_node:
        notes.append(
            f"--tp {layout.tensor} spans {layout.tensor // per_node} nodes of {per_node} GPUs: every layer waits for"
            " the network; a degree within a node is usually faster"
        )
    return tuple(notes)


def _has_moments(context: RankContext) -> bool:
    """Whether the optimizer keeps two moments of every element in fp32, as FusedAdam does."""
    tensor = LocalTensor(name="", numel=_MANY, dtype="float32", shape=(_MANY,))
    return 8 * _MANY <= state_bytes(context.optimizer, [tensor]) < 9 * _MANY


_MANY = 1 << 20
_GRADIENTS = {True: "added to their buffers by the product", False: "made whole, then added to their buffers"}
