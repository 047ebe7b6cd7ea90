"""What a strategy does along a rank's stream, as short lines: `+all-gather output m1 @1`."""

from gpu_plan.planner.memory.stream.rank import RankStream


def story(stream: RankStream, segment: int, *, backward: bool | None = None) -> list[str]:
    """Allocations and frees of what the strategy placed itself, in order; `@` names a stream beside the default one.

    Of one segment; of its forward or its backward part alone where `backward` is said. Weights' gradients, which a
    strategy frees, are told as `gradient NAME`.
    """
    trace = stream.trace
    traced = trace.num_tensors * stream.num_passes
    inside = stream.event_segment == segment
    if backward is not None:
        inside &= stream.event_in_backward == backward
    told = []
    for sign, tensor in zip(stream.event_sign[inside].tolist(), stream.event_tensor[inside].tolist(), strict=True):
        mark = "+" if sign > 0 else "-"
        if tensor >= traced:
            own = tensor - traced
            place = stream.cuda_stream[tensor]
            words = f"{stream.labels[own]} {stream.label_modules[own]}".strip()
            told.append(f"{mark}{words}" + (f" @{place}" if place else ""))
        elif (index := int(trace.tensor_parameter[tensor % trace.num_tensors])) >= 0:
            told.append(f"{mark}gradient {trace.parameters[index].name}")
    return told
