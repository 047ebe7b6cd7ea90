"""What a script has to do where ranks share the tokens of every sample, and what that costs unseen."""

from gpu_plan.planner.trace.variant import StepVariant
from gpu_plan.planner.units import format_gib


def context_notes(variant: StepVariant, gpus_per_node: int) -> tuple[str, ...]:
    """Notes on a rank's step; none where it computes whole samples."""
    split = variant.split
    if split is None:
        return ()
    own = variant.own_length
    notes = [f"each rank computes {own:,} tokens of every sample, its {split.degree} GPUs the same samples"]
    trainer = variant.stack.traits.is_trainer
    if split.method == "ring":
        notes += _ring(own, trainer)
    else:
        notes += _ulysses(trainer)
    if split.degree > gpus_per_node:
        notes.append(
            f"--cp {split.degree} spans nodes of {gpus_per_node} GPUs: every layer's attention waits for the network"
        )
    return tuple(notes)


def _ring(own: int, trainer: bool) -> list[str]:
    """transformers trainer.py: _prepare_context_parallel_inputs; masking_utils.py: find_packed_sequence_indices."""
    pairs = format_gib(own * own)
    notes = [
        "a rank's tokens are a piece of the head and one of the tail: transformers takes them for packed samples and"
        f" makes a mask of {own:,} squared ({pairs} GiB a sample), which Accelerate then drops; it is counted"
    ]
    if not trainer:
        notes.append(
            "each step stands within accelerator.maybe_context_parallel, whose buffers are input_ids, labels,"
            " shift_labels (labels moved on by one) and position_ids, all given to the model"
        )
    return notes


def _ulysses(trainer: bool) -> list[str]:
    """deepspeed ulysses_sp.py: UlyssesSPDataLoaderAdapter.refill, UlyssesSPAttentionHF.forward."""
    if trainer:
        return []
    return [
        "batches hold position_ids; labels come back as shift_labels, which the model is given as labels too, and the"
        " script averages the ranks' losses by their tokens (as transformers integrations/deepspeed.py:"
        " deepspeed_sp_compute_loss does)"
    ]
