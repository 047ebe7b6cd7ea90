"""The rank's figures in the trackers that the script itself has set up: the same names everywhere, under `plan/`."""

import queue
import threading
from typing import Any
from weakref import ref

from gpu_plan.executor.runner.figures.ledger import Row
from gpu_plan.executor.runner.recorder import Recorder

FINISH_SECONDS = 5.0
"""How long the end of the training waits for a tracker that is slow."""


def figures(row: Row) -> dict[str, float]:
    """What is known of a step, as `plan/name: value`."""
    found: dict[str, float] = {"plan/step_seconds": row.seconds}
    if row.seconds > 0:
        for name, count in (("samples", row.samples), ("tokens", row.tokens)):
            if count is not None:
                found[f"plan/{name}_per_second"] = count / row.seconds
    for name in ("peak_allocated_bytes", "peak_reserved_bytes", "device_used_bytes", "resident_bytes"):
        value = getattr(row, name)
        if value is not None:
            found[f"plan/{name}"] = value
    if row.loss is not None:
        found["plan/loss"] = row.loss
    return found


class Trackers:
    """Accelerate's trackers: a thread tells them each step, so that a slow service delays nothing."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._accelerator: Any = None
        self._waiting: queue.SimpleQueue[tuple[Any, int, dict[str, float]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._row: Row | None = None

    def follow(self, accelerator: Any) -> None:
        """Its trackers get each step's figures, once the script has initialised any."""
        if self._accelerator is None:
            self._recorder.step_ended.append(self._step_ended)
        self._accelerator = ref(accelerator)

    def finish(self) -> None:
        """Before the script closes its trackers: the last step's figures, then no more."""
        self._flush()
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join(FINISH_SECONDS)
            self._thread = None

    def _step_ended(self, row: Row, optimizer: Any, new: bool) -> None:
        if new:
            self._flush()  # a step is told when the next one has ended: its loss has arrived by then
            self._row = row

    def _flush(self) -> None:
        row, self._row = self._row, None
        accelerator = self._accelerator() if self._accelerator is not None else None
        trackers = getattr(accelerator, "trackers", None)
        if row is None or not trackers:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="plan-trackers", daemon=True)
            self._thread.start()
        for tracker in trackers:
            self._waiting.put((tracker, row.step, figures(row)))

    def _work(self) -> None:
        while (item := self._waiting.get()) is not None:
            tracker, step, values = item
            try:
                if getattr(tracker, "name", "") == "wandb":
                    # Its step only ever rises and belongs to the script: these join the script's next line.
                    tracker.log(values, commit=False)
                else:
                    tracker.log(values, step=step)
            except Exception as error:
                self._recorder.failed(f"tracker {getattr(tracker, 'name', type(tracker).__name__)}", error)
