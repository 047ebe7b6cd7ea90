"""What a training script really does on a CPU up to its first optimizer step.

Nothing of the planner's capture runs here: torch's own profiler sees the allocator's events between the first training
forward and the end of its backward.
"""

import contextlib
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile

from tests.support.cpu_reference import Reference, mark, reference_from
from tests.support.replay_cpu import measured, measured_phases


class RealRun:
    """Hooks around the script's loop."""

    def __init__(self, result: Path, passes: int = 1) -> None:
        self._result, self._passes = result, passes
        self._depth = 0
        self._in_backward = False
        self._model: Any = None
        self._wrapped = ""
        self._profile: Any = None
        self._reference: Reference | None = None
        self._inputs: dict[str, list[int]] = {}
        self._backward_passes = 0
        self._models: list[Any] = []
        self._waiting: list[Any] = []
        self._stepped_already: list[Any] = []

    def install(self) -> None:
        call, backward = nn.Module.__call__, torch.autograd.backward

        def watched_call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            outermost = self._depth == 0 and self._model is None and _trains(module)
            fresh = self._depth == 0 and self._backward_passes < self._passes and not self._in_backward
            held = any(module is part for model in self._models for part in model.modules())
            if fresh and next(module.parameters(), None) is not None and not held:
                self._models.append(module)
            if outermost:
                self._begin(module, args, kwargs)
            self._depth += 1
            try:
                out = call(module, *args, **kwargs)
            finally:
                self._depth -= 1
            if outermost:
                mark("bound")
            return out

        def watched_backward(*args: Any, **kwargs: Any) -> Any:
            if self._in_backward:  # of a reentrant checkpoint, inside the step's own
                return backward(*args, **kwargs)
            self._in_backward = True
            if self._profile is not None and self._backward_passes == 0:
                mark("backward")
            out = backward(*args, **kwargs)
            self._in_backward = False
            self._backward_passes += 1
            if self._profile is not None and self._backward_passes >= self._passes:
                mark("backward_end")
                self._end()
            return out

        nn.Module.__call__ = watched_call
        torch.autograd.backward = watched_backward
        init = torch.optim.Optimizer.__init__

        def constructed(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            self._waiting.append(optimizer)
            init(optimizer, *args, **kwargs)

        torch.optim.Optimizer.__init__ = constructed
        register_optimizer_step_post_hook(self._stepped)

    def _begin(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._wrapped = type(module).__name__
        self._model = getattr(module, "module", module) if "DistributedData" in type(module).__name__ else module
        named = {**{f"input {index}": value for index, value in enumerate(args)}, **kwargs}
        self._inputs = {name: list(tensor.shape) for name, tensor in _tensors(named)}
        self._profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
        self._profile.__enter__()
        mark("begin")

    def _end(self) -> None:
        finished, self._profile = self._profile, None
        finished.__exit__(None, None, None)
        self._reference = reference_from(finished)

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._stepped_already.append(optimizer)
        if self._reference is None:
            return
        if any(other not in self._stepped_already for other in self._waiting):
            return
        figures = measured(self._reference)
        state = {
            value.untyped_storage()._cdata: value.untyped_storage().nbytes()
            for stepped in self._stepped_already
            for entry in stepped.state.values()
            for value in entry.values()
            if isinstance(value, torch.Tensor)
        }
        # A reference under no_grad is trained by nothing, though its parameters would take gradients.
        trained = [model for model in self._models if any(p.grad is not None for p in model.parameters())]
        # A wrapper and what it wraps may both have been called from outside.
        owned = {p: p.numel() for model in trained for p in model.parameters() if p.requires_grad}
        document = {
            "parameters": sum(p.numel() for model in self._models for p in model.parameters()),
            "trainable": sum(owned.values()),
            "state_bytes": sum(state.values()),
            "inputs": self._inputs,
            "wrapped": self._wrapped,
            "accumulation": self._backward_passes,
            "peak": figures.peak,
            "forward_end": figures.forward_end,
            "phases": measured_phases(self._reference),
            "backward_end": figures.backward_end,
        }
        self._result.write_text(json.dumps(document))
        sys.stdout.flush()
        os._exit(0)


def _tensors(named: dict[str, Any]) -> list[tuple[str, torch.Tensor]]:
    """Tensors by the way to them, through lists and mappings."""
    found: list[tuple[str, torch.Tensor]] = []
    for name, value in named.items():
        if isinstance(value, torch.Tensor):
            found.append((name, value))
        elif isinstance(value, list | tuple):
            found += _tensors({f"{name}.{index}": part for index, part in enumerate(value)})
        elif isinstance(value, Mapping):
            found += _tensors({f"{name}.{key}": part for key, part in value.items()})
    return found


def _trains(module: nn.Module) -> bool:
    return module.training and torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters())


def real_run(script: Path, arguments: Sequence[str], folder: Path, passes: int = 1) -> dict[str, Any]:
    """Figures of the script's first step, run for real in a process of its own, in `folder`.

    They are of so many backward passes: of an iteration in which optimizers take turns, all.
    """
    result = folder / "real.json"
    words = [sys.executable, "-m", "tests.support.script_reference", str(result), str(script), *arguments]
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "ACCELERATE_USE_CPU": "true", "HF_HUB_OFFLINE": "1",
                   "OMP_NUM_THREADS": "1", "REFERENCE_PASSES": str(passes),
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}  # fmt: skip
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=1500, check=False)
    assert result.exists(), done.stderr[-3000:]
    document: dict[str, Any] = json.loads(result.read_text())
    return document


def main(words: list[str]) -> None:
    result, script, *arguments = words
    torch.set_num_threads(1)
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).parent))
    if "init_process_group" in Path(script).read_text():
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    RealRun(Path(result), int(os.environ.get("REFERENCE_PASSES", "1"))).install()
    with contextlib.suppress(SystemExit):
        runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
