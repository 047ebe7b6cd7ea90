"""Which partitions are in ZeRO-3's swap buffers: parameters that are kept on NVMe pass through them.

Mirrors deepspeed/runtime/swap_tensor/partitioned_param_swapper.py: AsyncPartitionedParameterSwapper (swap_in,
synchronize_reads, remove_partition_and_release_buffers) as runtime/zero/partition_parameters.py:
_ensure_availability_of_partitioned_params and partitioned_param_coordinator.py: __prefetch_nvme_param_partitions do.
"""

from collections.abc import Iterable, Sequence
from dataclasses import field, fields, replace

from gpu_plan.planner.plain.values import dataclass


class SwapError(Exception):
    """DeepSpeed ends the run with an AssertionError here."""

    def __init__(self, needed: int | None) -> None:
        super().__init__(f"{needed} swap buffers are needed" if needed else "a parameter is read twice at once")
        self.needed = needed
        """Buffers with which this fetch would have gone on; None where their number does not help."""


@dataclass(slots=True, kw_only=True)
class SwapPool:
    """The buffers' state; one parameter takes one buffer, whatever its size."""

    swapped: frozenset[int]
    """Parameters whose partitions are kept on NVMe."""
    buffers: int
    reads: int = 0
    """Partitions read since the last `begin`."""
    most: int = 0
    """Most buffers that were taken at once."""
    calls: list[tuple[tuple[int, ...], bool]] = field(default_factory=list)
    """Every read, as parameters in ascending order and whether it went on in the background."""
    _arrived: set[int] = field(default_factory=set)
    _flying: set[int] = field(default_factory=set)

    def copied(self) -> "SwapPool":
        """The same state, for a pool of its own."""
        return replace(self, calls=list(self.calls), _arrived=set(self._arrived), _flying=set(self._flying))

    def become(self, other: "SwapPool") -> None:
        """The state of a pool that is as large and passes the same, after what it went through."""
        kept = other.copied()
        for one in fields(self):
            setattr(self, one.name, getattr(kept, one.name))

    def absent(self, parameter: int) -> bool:
        """Whether a parameter's partition is on NVMe alone."""
        return parameter in self.swapped and parameter not in self._arrived and parameter not in self._flying

    def ensure(self, parameters: Iterable[int]) -> None:
        """What is about to be gathered is in memory: read now what is absent, else wait for what is on its way."""
        wanted = list(parameters)
        absent = [parameter for parameter in wanted if self.absent(parameter)]
        if absent:
            self._read(absent, waits=True)
            self._synchronize()
        elif any(parameter in self._flying for parameter in wanted):
            self._synchronize()

    def read_ahead(self, queue: Iterable[int], numel: Sequence[int], in_flight: int) -> None:
        """Begins to read what is used after the parameters in flight; `in_flight` is their elements."""
        considered = 0
        chosen: list[int] = []
        for parameter in queue:
            if considered > 2 * in_flight or len(chosen) >= self._free:
                break
            if self.absent(parameter):
                if parameter in chosen:
                    # _allocate_and_return_buffers_for_swap_in: "already assigned swap buffer id".
                    raise SwapError(None)
                chosen.append(parameter)
            considered += numel[parameter]
        if chosen:
            self._read(chosen, waits=False)

    def release(self, parameter: int) -> None:
        """A gathered parameter was partitioned again: its buffer is free."""
        self._arrived.discard(parameter)

    @property
    def _free(self) -> int:
        return self.buffers - len(self._arrived) - len(self._flying)

    def _read(self, parameters: list[int], *, waits: bool) -> None:
        if len(parameters) > self._free:
            raise SwapError(self.buffers - self._free + len(parameters))
        self.calls.append((tuple(sorted(parameters)), not waits))
        self._flying.update(parameters)
        self.reads += len(parameters)
        self.most = max(self.most, len(self._arrived) + len(self._flying))

    def _synchronize(self) -> None:
        self._arrived |= self._flying
        self._flying.clear()
