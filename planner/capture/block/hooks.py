"""Watches a block from inside: models that are called, backward passes, optimizer steps, clipping."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.optim import optimizer as optimizers
from torch.optim import swa_utils
from torch.utils import _foreach_utils
from torch.utils._pytree import tree_map_only

from gpu_plan.planner.capture.block.modules import BlockModules
from gpu_plan.planner.capture.block.outsiders import Outsiders
from gpu_plan.planner.capture.block.placement import BlockPlacement
from gpu_plan.planner.capture.block.recorder import BlockMark, BlockRecorder
from gpu_plan.planner.capture.watch.step.recording import inner_model
from gpu_plan.planner.trace.events import Category


class BlockHooks:
    """What happens in a block, told to its recorder."""

    def __init__(
        self, recorder: BlockRecorder, modules: BlockModules, placement: BlockPlacement, outsiders: Outsiders
    ) -> None:
        self._recorder, self._modules = recorder, modules
        self._placement, self._outsiders = placement, outsiders
        self._depth = 0
        self._in_backward = False
        self._handles: list[Any] = []
        self.models: list[str] = []
        """Class names of the models with parameters that were called, by first call."""
        self.forward_passes = 0
        self.backward_passes = 0
        self.steps = 0
        self.optimizers: dict[str, None] = {}

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Within, the hooks are in place."""
        call, backward, gradients = nn.Module.__call__, torch.autograd.backward, torch.autograd.grad
        register, copied = nn.Module.register_parameter, nn.Parameter.__deepcopy__

        def watched_call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self._depth or self._in_backward:  # inside a forward, or a recomputation
                return call(module, *args, **kwargs)
            self._depth = 1
            try:
                args, kwargs = self._before_forward(module, args, kwargs)
                return call(module, *args, **kwargs)
            finally:
                self._depth = 0

        def watched_backward(*args: Any, **kwargs: Any) -> Any:
            return self._backward(backward, args, kwargs)

        def watched_gradients(*args: Any, **kwargs: Any) -> Any:
            return self._backward(gradients, args, kwargs)

        def registered(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
            register(module, name, parameter)
            if parameter is not None and not isinstance(parameter, nn.parameter.UninitializedTensorMixin):
                self._recorder.assign(parameter, Category.PARAMETERS, f"{type(module).__name__}.{name}")

        def deep_copy(parameter: nn.Parameter, memo: dict[int, Any]) -> Any:
            made = copied(parameter, memo)
            self._recorder.assign(made, Category.PARAMETERS, "copied parameter")
            return made

        with contextlib.ExitStack() as stack:
            for home, name, wrapper in (
                (nn.Module, "__call__", watched_call),
                (torch.autograd, "backward", watched_backward),
                (torch.autograd, "grad", watched_gradients),
                (nn.Module, "register_parameter", registered),
                (nn.Parameter, "__deepcopy__", deep_copy),
            ):
                stack.enter_context(mock.patch.object(home, name, wrapper))
            stack.enter_context(_device_optimizers())
            self._handles += [
                optimizers.register_optimizer_step_pre_hook(self._before_step),
                optimizers.register_optimizer_step_post_hook(self._after_step),
            ]
            try:
                yield
            finally:
                for handle in self._handles:
                    handle.remove()

    # -- models ----------------------------------------------------------------------------------------

    def _before_forward(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Of an outermost call: everything it is given is brought to where the planned device is."""
        root = inner_model(module)
        self._outsiders.bring_in(root)
        args, kwargs = tree_map_only(torch.Tensor, self._placement.twin, (args, kwargs))
        self._recorder.point(BlockMark.FORWARD)
        if self._modules.follow(root):
            self._meet(root)
        if next(root.parameters(), None) is not None:
            self.forward_passes += 1
        return args, kwargs

    def _meet(self, model: nn.Module) -> None:
        """The first call of a model: its weights are named, and their gradients watched."""
        recorder = self._recorder
        recorder.adopt([*model.parameters(), *model.buffers()])
        for name, parameter in model.named_parameters():
            recorder.assign(parameter, Category.PARAMETERS, name)
            if parameter.requires_grad and parameter.is_leaf:
                hook = self._gradient_hook(name)
                self._handles.append(parameter.register_post_accumulate_grad_hook(hook))
        for name, buffer in model.named_buffers():
            recorder.assign(buffer, Category.BUFFERS, name)
        if next(model.parameters(), None) is not None:
            self.models.append(type(model).__name__)

    def _gradient_hook(self, name: str) -> Callable[[torch.Tensor], None]:
        def ready(parameter: torch.Tensor) -> None:
            if parameter.grad is not None:
                self._recorder.finished_gradient(parameter.grad, name)

        return ready

    # -- backward --------------------------------------------------------------------------------------

    def _backward(self, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._in_backward:
            return run(*args, **kwargs)
        self._modules.start_backward()
        self._recorder.point(BlockMark.BACKWARD)
        self._in_backward = True
        try:
            return run(*args, **kwargs)
        finally:
            self._in_backward = False
            self._modules.end_backward()
            self._recorder.point(BlockMark.BACKWARD_END)
            self.backward_passes += 1

    # -- optimizers ------------------------------------------------------------------------------------

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._outsiders.bring_in_optimizer(optimizer)
        self._recorder.point(BlockMark.STEP)

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.steps += 1
        self.optimizers[type(optimizer).__name__] = None
        for parameter, state in optimizer.state.items():
            name = self._recorder.name_of(parameter) if isinstance(parameter, torch.Tensor) else ""
            for key, value in state.items() if isinstance(state, dict) else ():
                if isinstance(value, torch.Tensor) and value.device.type == "meta":
                    self._recorder.assign(value, Category.OPTIMIZER_STATE, f"{name} {key}".strip())
        self._recorder.point(BlockMark.STEP_END)


@contextlib.contextmanager
def _device_optimizers() -> Iterator[None]:
    """Within, torch's optimizers choose for meta tensors as they choose for CUDA's: foreach, or fused where asked."""
    foreach = [*_foreach_utils._get_foreach_kernels_supported_devices(), "meta"]
    fused = [*_foreach_utils._get_fused_kernels_supported_devices(), "meta"]
    with contextlib.ExitStack() as stack:
        for home in (_foreach_utils, optimizers, swa_utils):
            stack.enter_context(mock.patch.object(home, "_get_foreach_kernels_supported_devices", return_value=foreach))
        for home in (_foreach_utils, optimizers):
            stack.enter_context(mock.patch.object(home, "_get_fused_kernels_supported_devices", return_value=fused))
        yield
