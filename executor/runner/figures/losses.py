"""The step's loss without making the device wait: what is passed to backward, read when its value has arrived."""

from typing import Any

from gpu_plan.executor.runner.figures.ledger import Row


class HostLosses:
    """On the CPU a value is there at once."""

    def __init__(self) -> None:
        self._sum: float | None = None

    def see(self, loss: Any, scale: float) -> None:
        """One backward pass of the round begins from `loss`; one on a device that we do not know is not waited for."""
        if loss.device.type != "cpu":
            return
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

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._round: list[tuple[Any, float, Any]] = []
        self._under_way: list[tuple[Row, list[tuple[Any, float, Any]]]] = []

    def see(self, loss: Any, scale: float) -> None:
        value = loss.detach().reshape(())
        if value.device.type != "cuda":
            if value.device.type == "cpu":
                self._round.append((value.clone(), scale, None))
            return
        slot = self._torch.empty((), dtype=value.dtype, device="cpu", pin_memory=True)
        slot.copy_(value, non_blocking=True)
        arrived = self._torch.cuda.Event()
        arrived.record(self._torch.cuda.current_stream(value.device))
        self._round.append((slot, scale, arrived))

    def close(self, row: Row) -> None:
        if self._round:
            self._under_way.append((row, self._round))
        self._round = []
        self.settle()

    def drop(self) -> None:
        self._round = []

    def settle(self, *, wait: bool = False) -> None:
        while self._under_way:
            row, values = self._under_way[0]
            events = [arrived for _, _, arrived in values if arrived is not None]
            if wait:
                for arrived in events:
                    arrived.synchronize()
            elif not all(arrived.query() for arrived in events):
                return
            del self._under_way[0]
            row.set_loss((row.loss or 0.0) + sum(float(slot) * scale for slot, scale, _ in values))


Losses = HostLosses | CudaLosses
