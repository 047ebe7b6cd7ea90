"""How a loop gets the checkpointing of a plan, where no flag of its launcher does it."""

from gpu_plan.planner.search.training.candidates import Family
from gpu_plan.planner.search.training.compilation import compilation_of
from gpu_plan.planner.trace.kernels.saved_operators import SAVED_OPERATORS
from gpu_plan.planner.workload.training import Attention, Checkpointing, Workload

ON_HOST = "checkpoint.offload"
"""accelerate 1.15 utils/fsdp_utils.py: fsdp2_apply_ac, `activation_checkpointing_offload`."""
REENTRANT = "checkpoint.reentrant"
_SHARDED = 3
"""The stage from which on weights are sharded."""


def checkpointing_notes(checkpointing: Checkpointing, workload: Workload) -> tuple[str, ...]:
    """One line of code for selective checkpointing and for one layer in several; empty for everything else.

    accelerate utils/fsdp_utils.py (fsdp2_apply_ac) and its FSDP1 counterpart checkpoint every wrapped layer in
    full; only the model's own method takes a context function or a distance.
    """
    every = checkpoint_every(checkpointing, workload)
    traits = workload.stack.traits
    if checkpointing is Checkpointing.SELECTIVE and traits.recomputes_every_second_product:
        fact = traits.fact("checkpointing")
        return (f"selective checkpointing is {traits.title}'s own: {fact.text if fact else ''}",)
    if checkpointing is Checkpointing.SELECTIVE:
        return (_selective(workload.attention, every),)
    if every == 1 or workload.stack.traits.is_trainer:
        return ()
    return (
        f"one layer in {every} is checkpointed, by model.gradient_checkpointing_enable(every_n_layers={every}) before "
        "the model is prepared: accelerate's own flag checkpoints all of them",
    )


def checkpoint_every(checkpointing: Checkpointing, workload: Workload) -> int:
    """Distance between checkpointed layers; 1 where nothing is checkpointed."""
    return 1 if checkpointing is Checkpointing.NONE else int(workload.setting("checkpoint.every", "1"))


def is_reentrant(family: Family, workload: Workload) -> bool:
    """Whether a step's checkpoints are reentrant ones: where each rank computes the whole model with weights of its
    own, so that no hook of a strategy hangs on how a layer is run again."""
    if family.checkpointing is not Checkpointing.FULL or not _asked(workload):
        return False
    whole = family.copy_ranks == 1 and family.strategy.traits.stage < _SHARDED
    return whole and compilation_of(workload, family.strategy.name) is None


def _asked(workload: Workload) -> bool:
    """Whether checkpoints are to be reentrant: as given, or as the stack has them."""
    return workload.setting(REENTRANT, str(workload.stack.traits.reentrant).lower()) == "true"


def reentrant_notes(family: Family, workload: Workload) -> tuple[str, ...]:
    """How a loop gets reentrant checkpoints, or that they are counted as others."""
    if family.checkpointing is not Checkpointing.FULL or not _asked(workload):
        return ()
    if not is_reentrant(family, workload):
        compiled = compilation_of(workload, family.strategy.name) is not None
        where = "a compiled step" if compiled else family.title
        given = f"--set {REENTRANT}=true" if workload.setting(REENTRANT, "") else f"stack {workload.stack}"
        return (f"{given}: checkpoints of {where} are counted as those that are not reentrant",)
    if workload.stack.traits.is_trainer:
        return ()
    return (
        "checkpoints are reentrant, by model.gradient_checkpointing_enable(gradient_checkpointing_kwargs="
        '{"use_reentrant": True}) before the model is prepared',
    )


def _selective(attention: Attention, every: int) -> str:
    names = [name for name in SAVED_OPERATORS if not name.startswith("_flash_attention")]
    operators = ", ".join(f"aten.{name}.default" for name in names)
    if attention is Attention.FLASH:
        operators += ", torch.ops.flash_attn._flash_attn_forward.default"
    distance = "" if every == 1 else f", every_n_layers={every}"
    return (
        "selective checkpointing is switched on in the script, before the model is prepared, with no flag of the "
        f"launcher's: aten = torch.ops.aten; model.gradient_checkpointing_enable(gradient_checkpointing_kwargs="
        '{"use_reentrant": False, "context_fn": functools.partial('
        f"torch.utils.checkpoint.create_selective_checkpoint_contexts, [{operators}])}}{distance})"
    )
