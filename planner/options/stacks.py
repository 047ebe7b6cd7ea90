"""What a stack has and has not: one line for a strategy, precision, degree or adapters that it does not run."""

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.strategy.known import unsharded
from gpu_plan.planner.workload.adapters import NO_ADAPTERS, Peft
from gpu_plan.planner.workload.named import listed
from gpu_plan.planner.workload.precisions import Precision
from gpu_plan.planner.workload.stacks.registry import Stack


def check_stack(
    stack: Stack | None, strategy: str | None, precision: Precision | None, peft: Peft | None, experts: int = 1
) -> None:
    """UsageError where a stack that was named does not go with what was named beside it."""
    if stack is None:
        return
    traits, adapters = stack.traits, peft or NO_ADAPTERS
    if experts > 1 and traits.experts_otherwise:
        raise UsageError(
            f"--stack {stack} --ep {experts}: {traits.experts_otherwise}: leave --stack out to plan experts as"
            " transformers spreads them, or leave --ep out"
        )
    _one_of(stack, "--strategy", strategy, traits.strategies)
    _one_of(stack, "--precision", precision, traits.precisions)
    if traits.adapters and adapters not in traits.adapters:
        trains = "needs adapters" if NO_ADAPTERS not in traits.adapters else "has no such adapters"
        given = f" with --peft {adapters}" if adapters.adapts else ""
        raise UsageError(f"--stack {stack}{given}: {traits.title} {trains}: use --peft {listed(traits.adapters)}")
    if adapters.quantises and precision is not None and precision.is_mixed and not traits.packs_mixed:
        pure = [name for name in traits.precisions if not Precision(name).is_mixed]
        raise UsageError(
            f"--stack {stack} --peft {adapters} with --precision {precision}: {traits.title} quantises without mixed"
            f" precision: use {listed(tuple(pure))}"
        )
    alone = unsharded(1).name
    if adapters.quantises and not traits.shards_packed and strategy not in (None, alone):
        raise UsageError(
            f"--stack {stack} --peft {adapters} --strategy {strategy}: {traits.title} trains a quantised base on one"
            f" device alone: --strategy {alone}"
        )


def _one_of(stack: Stack, option: str, given: str | None, able: tuple[str, ...]) -> None:
    if given is not None and able and given not in able:
        traits = stack.traits
        raise UsageError(f"--stack {stack} with {option} {given}: {traits.title} does not run it: use {listed(able)}")
