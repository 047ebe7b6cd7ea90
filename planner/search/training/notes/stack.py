"""What a plan follows of the stack that runs the loop, told beside the figures."""

from gpu_plan.planner.plan.document import Assumption
from gpu_plan.planner.strategy.known import traits_of
from gpu_plan.planner.workload.training import INSTALLED_LOSS, Workload


def stack_notes(workload: Workload) -> tuple[Assumption, ...]:
    """One line for what it holds and how it counts its loss, one for what of it is not followed; of a library that runs
    its own model in its own loop, nothing."""
    if workload.strategy is not None and traits_of(workload.strategy).own_model:
        return ()
    stack = workload.stack.traits
    about = ["upcast", "adapters"] if workload.peft.adapts else []
    about += ["loss"] if workload.loss != INSTALLED_LOSS else []
    told = [f"{fact.about}: {fact.text}" for fact in map(stack.fact, about) if fact is not None]
    notes = [Assumption(text="; ".join([f"stack {stack.name}: {stack.title} ({stack.basis})", *told]), basis="source")]
    if stack.approximate:
        notes.append(Assumption(text=f"stack {stack.name}: {stack.approximate}", basis="assumed"))
    return tuple(notes)
