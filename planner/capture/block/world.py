"""Everything that stands around a block while it is recorded, and is taken down after it."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.amp import autocast_mode

from gpu_plan.planner.capture.answers.devices.cuda import cuda_answers
from gpu_plan.planner.capture.answers.host_values import LoopReads, numbers_formatted
from gpu_plan.planner.capture.answers.loaders import loaders
from gpu_plan.planner.capture.answers.placement import parameters_on_meta
from gpu_plan.planner.capture.answers.precision import Regions, autocast_regions
from gpu_plan.planner.capture.answers.pretrained import weightless_models
from gpu_plan.planner.capture.block.hooks import BlockHooks
from gpu_plan.planner.capture.block.modules import BlockModules
from gpu_plan.planner.capture.block.outsiders import Outsiders
from gpu_plan.planner.capture.block.placement import BlockPlacement, loaders_on_cpu
from gpu_plan.planner.capture.block.recorder import BlockRecorder
from gpu_plan.planner.capture.imports import when_imported
from gpu_plan.planner.capture.request import PlannedDevice
from gpu_plan.planner.strategy.base import workspace_bytes
from gpu_plan.planner.trace.device import DeviceKind
from gpu_plan.planner.trace.inputs.known import KnownValues, remember_literals
from gpu_plan.planner.trace.kernels.temporaries import kernel_profile
from gpu_plan.planner.trace.recording.collection import no_collection
from gpu_plan.planner.trace.recording.functions import DeviceFunctions, python_wrappers_open
from gpu_plan.planner.trace.recording.origins import Origins


class BlockWorld:
    """One block: the planned device, and who watches what is done with it."""

    def __init__(self, device: PlannedDevice, home: Path) -> None:
        """`home`: the folder whose files are the user's own; lines are named relative to it."""
        known = KnownValues()
        capability = None if device.capability_major is None else (device.capability_major, device.capability_minor)
        self._device = device
        self._known = known
        self._regions = Regions(None, on_cpu=False)
        self._profile = kernel_profile(DeviceKind(capability=capability, sm_count=device.sm_count))
        self._placement = BlockPlacement(known)
        self._outsiders = Outsiders(known)
        self.modules = BlockModules()
        self.reads = LoopReads(known)
        self.recorder = BlockRecorder(
            self.modules, self._profile, self.reads, Origins(home).current, workspace_bytes(capability)
        )
        self.hooks = BlockHooks(self.recorder, self.modules, self._placement, self._outsiders)

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Within, the block runs; afterwards torch is as it was, and models from outside have their values back."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._outsiders.give_back)
            self._weightless(stack)
            for opened in (
                cuda_answers(self._device, 1),
                loaders(None),
                loaders_on_cpu(self._placement),
                parameters_on_meta(),
                self.hooks.installed(),
                python_wrappers_open(),
                numbers_formatted(),
                _earlier_autocast(self._regions),
                autocast_regions(self._regions),
                remember_literals(self._known),
                _eager(),
                no_collection(),
                self.modules,
                self.recorder,
                self._placement,
                DeviceFunctions(self._profile, self._regions.state, False),
            ):
                stack.enter_context(opened)
            yield

    def _weightless(self, stack: contextlib.ExitStack) -> None:
        """`from_pretrained` builds without weights, from the moment transformers is there: it is not imported here."""
        is_open = [True]
        stack.callback(is_open.clear)

        def imported(_: Any) -> None:
            if is_open:
                stack.enter_context(weightless_models({}))

        when_imported("transformers.modeling_utils", imported)


@contextlib.contextmanager
def _earlier_autocast(regions: Regions) -> Iterator[None]:
    """Lets a class that a module imported by name before the block open the same regions."""
    kept: dict[int, list[tuple[bool, torch.dtype]]] = {}

    def init(
        self: Any, device_type: str, dtype: torch.dtype | None = None, enabled: bool = True, *_: Any, **__: Any
    ) -> None:
        self.device, self.fast_dtype, self._enabled = device_type, dtype, enabled

    def enter(self: Any) -> Any:
        kept.setdefault(id(self), []).append(regions.open(self.fast_dtype, self._enabled))
        return self

    def leave(self: Any, *exc: object) -> None:
        regions.close(kept[id(self)].pop())

    original = autocast_mode.autocast
    with (
        mock.patch.object(original, "__init__", init),
        mock.patch.object(original, "__enter__", enter),
        mock.patch.object(original, "__exit__", leave),
    ):
        yield


@contextlib.contextmanager
def _eager() -> Iterator[None]:
    """Within, nothing is compiled: the block is counted as it is written."""

    def compiled(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        return model if model is not None else (lambda function: function)

    def in_place(module: Any, *args: Any, **kwargs: Any) -> None:
        return None

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(torch, "compile", compiled))
        stack.enter_context(mock.patch.object(torch.nn.Module, "compile", in_place))
        if "torch._dynamo" in sys.modules:  # what was compiled before
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield
