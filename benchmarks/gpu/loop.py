"""Runs one measured case: the loop of an accelerate script, of transformers' Trainer, or of plain torch."""

import contextlib
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.gpu.cases import Case
from benchmarks.gpu.memory import CpuMemory, Memory
from benchmarks.gpu.models import CannotRun, build, compute_dtype, make_batch, make_optimizer

_BACKENDS = {
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
    "math": "MATH",
}
_TIMED = 3
_TIMED_SECONDS = 6.0
_DRY_TIMED = 1
_MIXED = {"bf16-mixed": "bf16", "fp16-mixed": "fp16"}
_NORM = 1.0


@dataclass
class Run:
    """What a case's loop works on."""

    case: Case
    memory: Memory
    model: Any
    optimizer: Any
    batch: dict[str, torch.Tensor]
    accelerator: Any = None
    scaler: Any = None
    outputs: Any = None
    """What the loop's variables hold: the last ones live until the next forward has returned."""
    loss: Any = None
    phases: list[dict[str, Any]] = field(default_factory=list)

    @property
    def trained(self) -> list[nn.Parameter]:
        return [p for p in self.model.parameters() if p.requires_grad]

    def forward(self) -> None:
        """Binds outputs and loss; the Trainer's loop lets go of the outputs (trainer.py: compute_loss)."""
        autocast: Any = contextlib.nullcontext()
        if self.accelerator is None and self.case.precision in _MIXED:
            autocast = torch.autocast(self.memory.device.type, dtype=compute_dtype(self.case))
        with autocast:
            outputs = self.model(**self.batch)
        loss = outputs["loss"] if isinstance(outputs, dict) else outputs.loss
        self.outputs, self.loss = (None if self.case.stack == "trainer" else outputs), loss

    def backward(self) -> None:
        """Gradients; the Trainer keeps only the detached loss (trainer.py: training_step)."""
        if self.accelerator is not None:
            self.accelerator.backward(self.loss)
        elif self.scaler is not None:
            self.scaler.scale(self.loss).backward()
        else:
            self.loss.backward()
        if self.case.stack == "trainer":
            self.loss = self.loss.detach()

    def step(self) -> None:
        """Clipping, optimizer step, zero_grad."""
        if self.case.clipping:
            if self.accelerator is not None:
                self.accelerator.clip_grad_norm_(self.trained, _NORM)
            else:
                if self.scaler is not None:
                    self.scaler.unscale_(self.optimizer)
                nn.utils.clip_grad_norm_(self.trained, _NORM)
        if self.scaler is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        self.optimizer.zero_grad()


def prepare(case: Case, memory: Memory) -> Run:
    """Model, optimizer and inputs on the device. CannotRun where a package is missing."""
    model = build(case, memory.device)
    optimizer = make_optimizer(case, model)
    batch = make_batch(case, model, memory.device)
    run = Run(case=case, memory=memory, model=model, optimizer=optimizer, batch=batch)
    if case.stack != "plain":
        run.accelerator = _accelerator(case, memory)
        run.model, run.optimizer = run.accelerator.prepare(model, optimizer)
    elif case.precision == "fp16-mixed":
        run.scaler = torch.amp.GradScaler(memory.device.type)
    return run


def _accelerator(case: Case, memory: Memory) -> Any:
    try:
        import accelerate
        from accelerate.state import AcceleratorState, GradientState
    except ImportError:
        raise CannotRun("accelerate is not installed") from None
    AcceleratorState._reset_state(True)  # one process runs many cases
    GradientState._reset_state()
    cpu = memory.device.type == "cpu"
    return accelerate.Accelerator(mixed_precision=_MIXED.get(case.precision, "no"), cpu=cpu)


def _forced(attention: str) -> Any:
    """Backward recomputes under checkpointing, so the whole iteration runs inside."""
    if attention not in _BACKENDS:
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(getattr(SDPBackend, _BACKENDS[attention]))


def measure(case: Case, memory: Memory, snapshot: Path | None) -> dict[str, Any]:
    """Figures of one case; raises what the run raises."""
    run = prepare(case, memory)
    memory.settle()
    if isinstance(memory, CpuMemory):
        memory.standing(_standing(run))
    found: dict[str, Any] = {"before": memory.now(), **_sizes(run)}
    iterations = 4 if case.precision == "fp16-mixed" else 2  # the scaler may skip its first steps
    with _forced(case.attention):
        for iteration in range(iterations):
            last = snapshot if iteration == iterations - 1 else None
            with memory.history(last):
                _iteration(run)
        found["after"] = memory.now()
        found["step_seconds"] = _timed(run)
    found |= {"phases": run.phases, "peak": _worst(run.phases), "counts": memory.counts()}
    found["state_bytes"] = _state_bytes(run.optimizer)
    found["loop"] = "torch" if run.accelerator is None else "accelerate"
    return found


def _iteration(run: Run) -> None:
    """One optimizer step; notes the peaks of every phase and what stands afterwards."""
    memory, peaks = run.memory, {}
    for micro_step in range(run.case.grad_accum):
        memory.begin()
        run.forward()
        peaks[f"forward{micro_step or ''}"] = memory.end()
        memory.begin()
        run.backward()
        peaks[f"backward{micro_step or ''}"] = memory.end()
    memory.begin()
    run.step()
    peaks["step"] = memory.end()
    run.phases.append({"peaks": peaks, "at_rest": memory.now()})


def _timed(run: Run) -> float:
    """Median seconds of an optimizer step, after the measured ones."""
    taken: list[float] = []
    while len(taken) < (_DRY_TIMED if run.case.dry else _TIMED) and sum(taken) < _TIMED_SECONDS:
        run.memory.synchronize()
        start = time.perf_counter()
        for _ in range(run.case.grad_accum):
            run.forward()
            run.backward()
        run.step()
        run.memory.synchronize()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def _worst(phases: list[dict[str, Any]]) -> dict[str, Any]:
    """The highest figure of any phase, by kind."""
    every = [figures for phase in phases for figures in phase["peaks"].values()]
    return {name: max(figures[name] for figures in every) for name in every[0]}


def _storages(tensors: Any) -> int:
    unique = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in tensors}
    return sum(unique.values())


def _standing(run: Run) -> int:
    return _storages([*run.model.parameters(), *run.model.buffers(), *run.batch.values()])


def _sizes(run: Run) -> dict[str, Any]:
    parameters = list(run.model.parameters())
    return {
        "class": type(run.model if run.case.peft == "none" else run.model.get_base_model()).__name__,
        "parameters": sum(p.numel() for p in parameters),
        "trainable_parameters": sum(p.numel() for p in run.trained),
        "parameter_bytes": _storages(parameters),
        "buffer_bytes": _storages(run.model.buffers()),
        "attention_implementation": getattr(run.model.config, "_attn_implementation", None),
    }


def _state_bytes(optimizer: Any) -> int:
    inner = getattr(optimizer, "optimizer", optimizer)
    return _storages([v for state in inner.state.values() for v in state.values() if isinstance(v, torch.Tensor)])
