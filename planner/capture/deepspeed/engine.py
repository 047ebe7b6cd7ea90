"""The engine of a captured script: forward, backward and step as loops call them, on one rank and unsharded."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from gpu_plan.planner.capture.deepspeed.config import EngineConfig

Clip = Callable[[float], None]


class NoTimer:
    """Stands for the engine's timers and schedulers: any method of it does nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class DeepSpeedEngine(nn.Module):
    """As deepspeed/runtime/engine.py: it owns accumulation, scaling, clipping and the optimizer's step."""

    def __init__(
        self, model: nn.Module, optimizer: Any, config: EngineConfig, scheduler: Any, world_size: int, clip: Clip
    ) -> None:
        super().__init__()
        self.module = model
        self.optimizer = self.basic_optimizer = optimizer
        self.lr_scheduler = scheduler
        self.config, self._config = config.raw, config
        self.world_size, self.dp_world_size = world_size, world_size
        self.global_rank = self.local_rank = 0
        self.device = torch.device("cuda")
        self.micro_steps = self.global_steps = self.global_samples = self.skipped_steps = 0
        self.tput_timer = self.timers = self.monitor = NoTimer()
        self._clip = clip
        self._boundary: bool | None = None

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def backward(self, loss: torch.Tensor, *_: Any, scale_wrt_gas: bool = True, **__: Any) -> torch.Tensor:
        if scale_wrt_gas and self._config.accumulation > 1:
            loss = loss / self._config.accumulation
        loss.backward()
        return loss

    def step(self, *_: Any, **__: Any) -> None:
        """Counts a micro step; at the boundary the optimizer steps and gradients go."""
        if self.is_gradient_accumulation_boundary():
            if self._config.clipping > 0:
                self._clip(self._config.clipping)
            self.optimizer.step()
            self.optimizer.zero_grad()
            if self.lr_scheduler is not None:
                self.lr_scheduler.step()
            self.global_steps += 1
        self.micro_steps += 1

    def is_gradient_accumulation_boundary(self) -> bool:
        if self._boundary is not None:
            return self._boundary
        return (self.micro_steps + 1) % self._config.accumulation == 0

    def set_gradient_accumulation_boundary(self, is_boundary: bool) -> None:
        self._boundary = is_boundary

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        yield

    # -- what loops ask it ---------------------------------------------------------------------------

    def train_batch_size(self) -> int:
        return self._config.micro_batch * self._config.accumulation * self.world_size

    def train_micro_batch_size_per_gpu(self) -> int:
        return self._config.micro_batch

    def gradient_accumulation_steps(self) -> int:
        return self._config.accumulation

    def gradient_clipping(self) -> float:
        return self._config.clipping

    def zero_optimization_stage(self) -> int:
        return self._config.facts.stage

    def zero_optimization(self) -> bool:
        return self._config.facts.stage > 0

    def bfloat16_enabled(self) -> bool:
        return self._config.dtype == "bfloat16"

    def fp16_enabled(self) -> bool:
        return self._config.dtype == "float16"

    def get_data_types(self) -> tuple[torch.dtype, torch.dtype]:
        dtype = getattr(torch, self._config.dtype or "float32")
        return dtype, dtype

    def get_lr(self) -> list[float]:
        return [] if self.optimizer is None else [group["lr"] for group in self.optimizer.param_groups]

    def get_global_grad_norm(self) -> float:
        return 1.0

    def was_step_applied(self) -> bool:
        return True

    def load_checkpoint(self, *_: Any, **__: Any) -> tuple[None, dict[str, Any]]:
        return None, {}

    def save_checkpoint(self, *_: Any, **__: Any) -> bool:
        return True

    def offload_states(self, *_: Any, **__: Any) -> None:
        return None

    reload_states = destroy = save_16bit_model = offload_states
