"""The step's loss without making the device wait: what is passed to backward, read when its value has arrived."""

from typing import Any

from executor.runner.ledger import Row


class HostLosses:
    """On the CPU a value is there at once."""

    def __init__(self) -> None:
        self._sum: float | None = None

    def see(self, loss: Any, scale: float) -> None:
        """One backward pass of the round begins from `loss`."""
        self._sum = (self._sum or 0.0) + float(loss.detach()) * scale

    def close(self, row: Row) -> None:
        """The round has ended in `row`."""
        if self._sum is not None:
            row.set_loss((row.loss or 0.0) + self._sum)
        self._sum = None

    def drop(self) -> None:
        """The round was skipped."""
        self._sum = None

    def settle(self, *, wait: bool = False) -> None:
        """Puts values that have arrived into their rows; `wait` for those under way."""


class CudaLosses:
    """On CUDA each value is copied to pinned memory behind the work already queued, and read a step later."""

    def __init__(self, torch: Any, device: int) -> None:
        self._torch, self._device = torch, device
        self._round: list[tuple[Any, float]] = []
        self._under_way: list[tuple[Row, Any, list[tuple[Any, float]]]] = []

    def see(self, loss: Any, scale: float) -> None:
        value = loss.detach()
        slot = self._torch.empty((), dtype=value.dtype, device="cpu", pin_memory=True)
        slot.copy_(value.reshape(()), non_blocking=True)
        self._round.append((slot, scale))

    def close(self, row: Row) -> None:
        if self._round:
            event = self._torch.cuda.Event()
            event.record(self._torch.cuda.current_stream(self._device))
            self._under_way.append((row, event, self._round))
        self._round = []
        self.settle()

    def drop(self) -> None:
        self._round = []

    def settle(self, *, wait: bool = False) -> None:
        while self._under_way:
            row, event, slots = self._under_way[0]
            if not event.query():
                if not wait:
                    return
                event.synchronize()
            del self._under_way[0]
            row.set_loss((row.loss or 0.0) + sum(float(slot) * scale for slot, scale in slots))


Losses = HostLosses | CudaLosses
