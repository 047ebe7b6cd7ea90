"""Adapters under FSDP1: what the real code takes and what it refuses.

peft utils/other.py: fsdp_auto_wrap_policy makes a unit of every adapter matrix; transformers' Trainer sets it
(distributed/fsdp.py: update_fsdp_plugin_peft), other loops have to.
"""

from collections.abc import Sequence

from gpu_plan.planner.strategy.base import RankContext
from gpu_plan.planner.strategy.fsdp1.flat import FlatUnit

WRAPPING_NOTE = (
    "the loop sets accelerator.state.fsdp_plugin.auto_wrap_policy = fsdp_auto_wrap_policy(model) from "
    "peft.utils.other before it prepares the model, as the Trainer does; torch flattens adapters and base together "
    "otherwise, and refuses two types in one flat parameter"
)


def adapter_notes(context: RankContext, storage: str) -> tuple[str, ...]:
    """What the loop has to do for adapters to train so; `storage` is the type of the frozen flat parameters."""
    notes = [] if context.stack.traits.is_trainer else [WRAPPING_NOTE]
    if context.peft.quantises:
        # transformers' and trl's trainers leave prepare_model_for_kbit_training out for sharded QLoRA.
        notes.append(
            f"with QLoRA the base is loaded with bnb_4bit_quant_storage=torch.{storage} and the rest of it in "
            f"{storage}, not upcast by prepare_model_for_kbit_training: one flat parameter holds one type"
        )
    return tuple(notes)


def refuses_adapters(context: RankContext, units: Sequence[FlatUnit]) -> str | None:
    """Why adapters cannot be trained so, or None; `units` as the policy makes them."""
    if not context.peft.adapts:
        return None
    if context.precision.is_mixed and not context.stack.traits.wraps_forward:
        return (
            "peft casts inputs to the fp32 of an adapter's shard, and FSDP1 gathers it in 16 bits: without autocast, "
            "torch refuses the product (--stack accelerate or trainer)"
        )
    return next((_mixed(context, unit) for unit in units if _mixed(context, unit)), None)


def _mixed(context: RankContext, unit: FlatUnit) -> str | None:
    """peft's policy leaves a trained parameter that is no leaf module's weight with the frozen ones around it."""
    frozen = [index for index in unit.parameters if not context.trace.parameters[index].trainable]
    if not unit.trainable or not frozen:
        return None
    trained = next(index for index in unit.parameters if context.trace.parameters[index].trainable)
    name = context.trace.parameters[trained].name
    return f"FSDP1 would flatten {name} together with frozen parameters, in one type and with gradients for all"
