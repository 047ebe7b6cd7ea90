"""What a rank that runs prompts tells of itself, kept up with every batch."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_plan.executor.inference.job import InferenceJob, Place
from gpu_plan.executor.inference.prompting.decode import Batch
from gpu_plan.executor.inference.prompting.measure import Interval
from gpu_plan.executor.runner.current import current_recorder
from gpu_plan.executor.runner.figures.ledger import Row


def device_name(place: Place) -> str:
    """A device map's word as torch names the device; `disk` stays."""
    return f"cuda:{place}" if isinstance(place, int) else place


@dataclass(slots=True, kw_only=True)
class Figures:
    """One rank's figures; without a runner around it they are kept for the script alone."""

    job: InferenceJob
    prompts: int
    done_before: int
    output: Path
    base_resident: int
    loaded_by: str = ""
    load_seconds: float = 0.0
    weights: dict[Place, int] = field(default_factory=dict)
    done: int = 0
    timed: int = 0
    """Batches whose times count."""
    prefill_seconds: float = 0.0
    prefill_tokens: int = 0
    decode_seconds: float = 0.0
    decode_steps: int = 0
    decode_tokens: int = 0
    _batches: int = 0
    _peaks: dict[str, dict[str, int]] = field(default_factory=dict)

    def loaded(self, way: str, interval: Interval, weights: dict[Place, int], parameters: int | None) -> None:
        """The model is there."""
        self.loaded_by, self.load_seconds, self.weights = way, interval.seconds, weights
        self._widen("load", interval)
        recorder = current_recorder()
        if recorder is None:
            return
        recorder.status = "running"
        recorder.actual["stack"] = "generate"
        if parameters is not None:
            recorder.actual["parameters"] = parameters
        recorder.inference = self.document()
        recorder.write()

    def resumed(self, batches: int) -> None:
        """Batches of earlier attempts: counting goes on from there."""
        recorder = current_recorder()
        if recorder is not None:
            recorder.resume_at(batches)

    def batch(self, batch: Batch) -> None:
        """A batch is done and on the disk."""
        self.done += len(batch.outputs)
        self._time(batch)
        self._widen("prefill", batch.prefill)
        if batch.decode_steps:
            self._widen("decode", batch.decode)
        recorder = current_recorder()
        if recorder is None:
            return
        row = self._row(batch)
        row.resident_bytes = max(batch.prefill.peaks.get("cpu", 0), batch.decode.peaks.get("cpu", 0)) or None
        recorder.ledger.append(row)
        recorder.inference = self.document()
        recorder.write()

    def _time(self, batch: Batch) -> None:
        """The first batch warms up: its times count only while there is no other."""
        if self._batches == 1:
            self.timed = self.prefill_tokens = self.decode_steps = self.decode_tokens = 0
            self.prefill_seconds = self.decode_seconds = 0.0
        self._batches += 1
        self.timed += 1
        self.prefill_seconds += batch.prefill.seconds
        self.prefill_tokens += batch.prompt_tokens
        if batch.decode_steps:
            self.decode_seconds += batch.decode.seconds
            self.decode_steps += batch.decode_steps
            self.decode_tokens += batch.decoded_tokens

    def _row(self, batch: Batch) -> Row:
        main = "cpu" if self.job.on_cpu else next((name for name in batch.prefill.peaks if name != "cpu"), "cpu")
        phases = {
            name: interval.peaks[main]
            for name, interval in (("prefill", batch.prefill), ("decode", batch.decode))
            if main in interval.peaks
        }
        allocated = [
            peak for interval in (batch.prefill, batch.decode) for name, peak in interval.peaks.items() if name != "cpu"
        ]
        return Row(
            step=0,
            seconds=batch.prefill.seconds + (batch.decode.seconds if batch.decode_steps else 0.0),
            micro_batches=1,
            samples=len(batch.outputs),
            tokens=sum(len(output) for output in batch.outputs),
            peak_allocated_bytes=max(allocated, default=None),
            phases=phases,
        )

    def _widen(self, phase: str, interval: Interval) -> None:
        for device, peak in interval.peaks.items():
            phases = self._peaks.setdefault(device, {})
            phases[phase] = max(phases.get(phase, 0), peak)

    def document(self) -> dict[str, Any]:
        """Fields of `gpu_plan.executor.records.rank.InferenceFigures`."""
        return {
            "layout": self.job.layout,
            "loaded_by": self.loaded_by,
            "prompts": self.prompts,
            "done_before": self.done_before,
            "done": self.done,
            "load_seconds": self.load_seconds,
            "libraries_bytes": self.base_resident,
            "timed_batches": self.timed,
            "prefill_seconds": self.prefill_seconds,
            "prefill_tokens": self.prefill_tokens,
            "decode_seconds": self.decode_seconds,
            "decode_steps": self.decode_steps,
            "decode_tokens": self.decode_tokens,
            "devices": self._devices(),
            "output": str(self.output),
        }

    def _devices(self) -> list[dict[str, Any]]:
        weights = {device_name(place): size for place, size in self.weights.items()}
        found = []
        for name in dict.fromkeys((*weights, *self._peaks)):
            phases = self._peaks.get(name, {})
            found.append(
                {
                    "device": name,
                    "weight_bytes": weights.get(name, 0),
                    "peak_bytes": max(phases.values(), default=None),
                    "phases": phases,
                }
            )
        return found
