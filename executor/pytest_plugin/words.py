"""A measured test in words: for its failure, and for pytest's summary."""

from collections.abc import Iterable, Iterator, Sequence

from gpu_plan.executor.pytest_plugin.measured import Measured, Standing, from_json
from gpu_plan.planner.units import format_bytes

_SHOWN = 6
_READS = 5
_KINDS = {"allocated": "peak allocated", "reserved": "peak reserved", "device": "device memory"}
_CONTROLS = {code: " " for code in (*range(32), *range(127, 160))}


def breakdown(measured: Measured) -> Iterator[str]:
    """What stands behind the figures, one line each."""
    yield headline(measured)
    yield f"at the peak: {_sizes(measured.at_peak)}"
    yield f"peak by phase: {_sizes(measured.phase_peaks)}"
    yield from standing_lines(measured.largest)
    yield from answer_lines(measured.host_reads)


def answer_lines(answered: Sequence[str]) -> Iterator[str]:
    """Values that a block read of tensors: nothing is computed there, so each is told something."""
    for read in answered[:_READS]:
        yield f"a value was read and not computed: {_clean(read)}"
    if len(answered) > _READS:
        yield f"{len(answered) - _READS} more values were read"


def headline(measured: Measured) -> str:
    """The figures in one line."""
    line = (
        f"peak allocated {format_bytes(measured.peak_allocated_bytes)}, reserved"
        f" {format_bytes(measured.peak_reserved_bytes)} on {_clean(measured.gpu)}"
        f" ({format_bytes(measured.capacity_bytes)}), in {measured.phase_of_peak}"
    )
    if measured.limit_bytes is not None:
        sign = "above" if measured.exceeds else "within"
        line += f"; {sign} the limit of {format_bytes(measured.limit_bytes)} {_of(measured)}"
    return line if measured.fits else line + "; does not fit this GPU"


def _of(measured: Measured) -> str:
    return {"allocated": "allocated", "reserved": "reserved", "device": "of the device"}[measured.limit_of]


def failure(measured: Measured) -> str:
    """Why a test fails that took more than its limit, with what stands at the peak."""
    assert measured.limit_bytes is not None
    taken = measured.bytes_of(measured.limit_of)
    more = _exactly(taken - measured.limit_bytes)
    first = (
        f"{_KINDS[measured.limit_of]} is {format_bytes(taken)}, {more} above the limit"
        f" of {format_bytes(measured.limit_bytes)} on {_clean(measured.gpu)}, in {measured.phase_of_peak}"
    )
    return "\n".join([first, f"at the peak: {_sizes(measured.at_peak)}", *standing_lines(measured.largest)])


def standing_lines(largest: Iterable[Standing]) -> Iterator[str]:
    """The largest tensors at the peak, where they come from and who made them."""
    for standing in list(largest)[:_SHOWN]:
        count = f" x{standing.count}" if standing.count > 1 else ""
        what = " ".join(filter(None, (standing.module, standing.operator, standing.shape)))
        place = f"  {standing.origin}" if standing.origin else ""
        yield _clean(f"  {format_bytes(standing.nbytes):>9}  {standing.category:<15}  {what}{count}{place}")


def summary_lines(found: Iterable[tuple[str, str]]) -> Iterator[str]:
    """One test after the other, in the order in which they were reported."""
    for nodeid, text in found:
        measured = from_json(text)
        yield f"{_clean(nodeid)}: {headline(measured)}"
        yield f"    {_sizes(measured.at_peak)}"


def _sizes(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name} {format_bytes(size)}" for name, size in sizes.items())


def _exactly(nbytes: int) -> str:
    return format_bytes(nbytes) if nbytes >= 1024 else f"{nbytes} bytes"


def _clean(text: str) -> str:
    """Names come from models and files: no control characters reach the terminal."""
    return text.translate(_CONTROLS)
