"""Whether the recordings at the two ends of a range tell what lies between them."""

from gpu_plan.planner.trace.recording.fit import Recording, signature


def ends_suffice(low: Recording, high: Recording) -> bool:
    """Whether both are of one structure, and all that they hold is either the same at both or in proportion to the
    micro batch: shapes whose every size is the one or the other, and bytes that follow from the shape.

    A third recording between them is made where anything else is found: what is added to something that grows, and
    what kernels take in tiles, which may bend.
    """
    if signature(low.raw) != signature(high.raw):
        return False
    few, many = low.micro_batch, high.micro_batch
    for one, other in zip(low.raw.tensors, high.raw.tensors, strict=True):
        if one.ruled is not None and other.ruled is not None:
            continue  # its rule tells every size
        grows = [pair for pair in zip(one.shape, other.shape, strict=True) if pair[0] != pair[1]]
        if len(grows) > 1 or any(many * size != few * larger for size, larger in grows):
            return False
        expected = one.nbytes * many if grows else one.nbytes * few
        if other.nbytes * few != expected:
            return False
    return True
