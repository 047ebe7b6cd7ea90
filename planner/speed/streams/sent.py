"""What a step sends as transfers: the seconds of all calls, and what of them runs beside attention or products."""

from gpu_plan.planner.speed.device import EXPECTED, FAST, SLOW, StepDevice, attention_block
from gpu_plan.planner.speed.model import Collective, StepWork
from gpu_plan.planner.speed.operators import OperatorClass, Operators
from gpu_plan.planner.speed.rates import Rate
from gpu_plan.planner.speed.streams.overlap import Transfer
from gpu_plan.planner.trace.events import FloatArray


def transfers_of(
    work: StepWork,
    operators: Operators,
    device: StepDevice,
    taken: Rate,
    collectives: list[Collective],
    calls: list[Rate],
) -> list[Transfer]:
    """Collectives with the seconds of all their calls, and of those that hide behind attention or products; `taken`:
    the share of the multiprocessors that a call takes from what it hides behind."""
    blocks = [attention_block(operators, work.micro_batch, device, bound) for bound in (SLOW, EXPECTED, FAST)]
    return [
        Transfer(
            collective=collective,
            seconds=(call.slow * collective.count, call.expected * collective.count, call.fast * collective.count),
            hidden=_hidden(collective, (call.slow, call.expected, call.fast), blocks, device, taken),
        )
        for collective, call in zip(collectives, calls, strict=True)
    ]


def _hidden(
    collective: Collective,
    calls: tuple[float, float, float],
    blocks: list[FloatArray],
    device: StepDevice,
    taken: Rate,
) -> tuple[float, float, float]:
    """Seconds of all calls that cost nothing, since attention or products run beside them: slow, expected, fast. Beside
    a product that fills the device a call may get its multiprocessors only at the product's end: slow hides none."""
    phase, beside = collective.beside
    if not beside and not collective.products:
        return 0.0, 0.0, 0.0

    def seconds(bound: int) -> float:
        if beside:
            return min(calls[bound], beside * float(blocks[bound][phase]))
        if bound == SLOW:
            return 0.0
        products = collective.products / float(device.flops[bound, OperatorClass.MATMUL])
        return min(calls[bound], products) * (1 - taken.bounds[bound])

    return tuple(seconds(bound) * collective.count for bound in (SLOW, EXPECTED, FAST))  # type: ignore[return-value]
