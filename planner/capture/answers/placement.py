"""Puts what the script means for a GPU on meta: devices asked for, parameters as they are registered.

Integer values are remembered when a tensor leaves the CPU, so that what a model reads of its inputs stays true.
"""

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

from gpu_plan.planner.capture.answers.devices.defaults import gpu_dtype, host_dtype, type_name
from gpu_plan.planner.capture.answers.devices.host_lengths import TAKEN, with_lengths
from gpu_plan.planner.capture.answers.devices.whereabouts import ANSWERS, users_own
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.trace.inputs.known import MAX_ELEMENTS, KnownValues

if TYPE_CHECKING:
    from types import FrameType

META = torch.device("meta")
_LOOKS = {torch.Tensor.__repr__, torch.Tensor.__format__}
_FACTORIES = {
    torch.arange, torch.empty, torch.eye, torch.full, torch.linspace, torch.ones, torch.rand, torch.randint,
    torch.randn, torch.tensor, torch.zeros,
}  # fmt: skip
_SOUND: dict[Any, bool] = {
    torch.isfinite: True, torch.Tensor.isfinite: True, torch.isnan: False, torch.Tensor.isnan: False,
    torch.isinf: False, torch.Tensor.isinf: False,
}  # fmt: skip
"""What is said of numbers that meta does not have."""
_ARRAYS = {torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.tolist}
"""What takes values off the device at once: they are looked at, printed, compared."""
_MOVES = {torch.Tensor.to, torch.Tensor.cuda, torch.Tensor.cpu, torch.Tensor.pin_memory}


class Placement(TorchFunctionMode):
    """Function mode: every CUDA device is meta, and what is on meta stays there.

    On planned CPUs nothing need be moved to meet the model: there, CPU tensors join it where they are used together.
    """

    def __init__(
        self, known: KnownValues, on_cpu: bool, array: Callable[[torch.Tensor], torch.Tensor] | None = None
    ) -> None:
        super().__init__()
        self._known, self._array = known, array
        self._on_cpu = on_cpu
        self.placed = False
        """Whether the script has put anything on a planned device."""
        self.by_default = False
        """Whether what the script makes lies on the planned device unless it says otherwise."""
        self.recording = False
        """Whether a step is being recorded: on planned CPUs, what it makes then is made on meta."""
        self._twins: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._brought: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._before: frozenset[int] = frozenset()
        self.joined: Callable[[torch.Tensor], None] = lambda _: None
        """Told of a host's tensor that meets the step on planned CPUs, where it lay before."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        answered = ANSWERS.get(func)
        if answered is not None:
            return self._asked(func, answered, args)
        kwargs = dict(kwargs or {})
        if func in _MOVES:
            return self._move(func, args, kwargs)
        if func is torch.Tensor.type:
            return self._typed(args[0], args[1] if len(args) > 1 else kwargs.get("dtype"))
        if self.by_default and kwargs.get("device") is None and func in _device_constructors() and not _loads():
            kwargs["device"] = META
        if func in _ARRAYS and self._array is not None and args[0].is_meta:
            args = (self._array(args[0].detach()), *args[1:])
        if kwargs.get("device") is not None and is_planned(kwargs["device"]):
            self.placed |= not _is_meta(kwargs["device"])
            kwargs["device"] = META
        if self._on_cpu and self.recording and func in _FACTORIES and not _ours():
            kwargs["device"] = META
        if kwargs.get("generator") is not None and (_is_meta(kwargs.get("device")) or _any_on_meta(args)):
            kwargs["generator"] = None  # numbers that nobody draws
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        # A script that puts nothing on the GPU works on the host alone, and there its tensors meet.
        if (self._on_cpu or not self.placed) and func not in _LOOKS and _mixes(args, kwargs):
            args, kwargs = tree_map_only(torch.Tensor, self.twin, (args, kwargs))
        if func in TAKEN:
            args = with_lengths(func, args, self._known, self.twin)
        made = func(*args, **kwargs)
        answer = _SOUND.get(func)
        if answer is not None and made.is_meta and made.numel() <= MAX_ELEMENTS:
            # On a GPU a first loss is finite, and a loop that asks would stop where it were not.
            with _disable_current_modes():
                self._known.put(made, torch.full(made.shape, answer, dtype=torch.bool))
        return made

    def _asked(self, func: Any, answered: Callable[[bool], Any], args: tuple[Any, ...]) -> Any:
        """Where a tensor is: the user's own code knows of no meta."""
        if not self._on_cpu and args[0].is_meta and users_own():
            return answered(self.placed)
        return func(*args)

    def make_default(self, planned: bool) -> None:
        """New tensors lie on the planned device from now on, or no longer."""
        self.by_default = planned
        self.placed |= planned

    def twin(self, tensor: torch.Tensor) -> torch.Tensor:
        """A CPU tensor's one stand-in on meta; any other tensor as it is."""
        if tensor.device.type != "cpu":
            return tensor
        if tensor not in self._twins:
            with _disable_current_modes():
                moved = torch.empty_like(tensor, device=META)
            remember(self._known, moved, tensor)
            self._twins[tensor] = moved
            if self.recording and tensor.untyped_storage()._cdata in self._before:
                self.joined(moved)
        made: torch.Tensor = self._twins[tensor]
        return made

    def _typed(self, tensor: torch.Tensor, kind: Any) -> Any:
        """`tensor.type()` in the words of the planned device, and `tensor.type("torch.cuda.FloatTensor")`."""
        if kind is None and tensor.is_meta:
            return type_name(tensor.dtype, self.placed and not self._on_cpu)
        dtype = gpu_dtype(kind)
        if dtype is not None:
            self.placed = True
            return self.to_meta(tensor, {}, (dtype,))
        dtype = host_dtype(kind) if tensor.is_meta else None
        return torch.Tensor.type(tensor, kind if dtype is None else dtype)

    def _move(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensor = args[0]
        if func is torch.Tensor.pin_memory:
            return tensor
        if func is torch.Tensor.cuda:
            self.placed = True
            return self.to_meta(tensor, {})
        if func is torch.Tensor.cpu:
            return tensor if tensor.device.type == "meta" else func(*args, **kwargs)
        device, rest, options = _target(args[1:], kwargs)
        if device is None:
            return func(tensor, *rest, **options)
        if is_planned(device):
            self.placed |= not _is_meta(device)
            return self.to_meta(tensor, options, rest)
        if tensor.device.type == "meta" and torch.device(device).type == "cpu":
            # Values do not come back: what leaves the device is only looked at, and host reads are answered by policy.
            dtype = next((item for item in (*rest, options.get("dtype")) if isinstance(item, torch.dtype)), None)
            return tensor if dtype is None else func(tensor, dtype)
        return func(*args, **kwargs)

    def to_meta(self, tensor: torch.Tensor, options: dict[str, Any], rest: tuple[Any, ...] = ()) -> torch.Tensor:
        """`tensor` on meta, its values remembered where they are whole numbers and few."""
        options = {key: value for key, value in options.items() if key != "non_blocking"}
        if tensor.layout is not torch.strided:
            raise InputError(f"it puts a sparse tensor ({tensor.layout}) on the GPU, of which no plan is made")
        moved = torch.Tensor.to(tensor, META, *(item for item in rest if isinstance(item, torch.dtype)), **options)
        if tensor.device.type == "cpu" and moved is not tensor:
            remember(self._known, moved, tensor)
            if not self.recording and not moved.is_floating_point():
                self._brought[moved] = True
        return moved

    def begin(self) -> None:
        """A step begins. On planned CPUs what lies on the host by now lies where the step runs."""
        if self._on_cpu:
            tensors = [thing for thing in gc.get_objects() if type(thing) is torch.Tensor]
            on_host = [one for one in tensors if one.device.type == "cpu" and one.layout is torch.strided]
            self._before = frozenset(one.untyped_storage()._cdata for one in on_host)

    def brought(self) -> list[torch.Tensor]:
        """Whole numbers that the script has put on the device and still holds: masks, labels, ids."""
        return list(self._brought)


def remember(known: KnownValues, moved: torch.Tensor, tensor: torch.Tensor) -> None:
    """Keeps the values of a small CPU tensor of whole numbers beside its twin on meta."""
    if tensor.is_floating_point() or tensor.is_complex() or tensor.numel() > MAX_ELEMENTS:
        return
    with _disable_current_modes(), torch.no_grad():
        if moved.is_contiguous():
            known.put(moved, tensor.detach().to(moved.dtype).contiguous())


_BETWEEN = ("gpu_plan.planner.trace.recording.functions", "gpu_plan.planner.capture.answers.placement", "torch")


def _loads() -> bool:
    """Whether a loader's sampler draws: its numbers stay on the host."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith(_BETWEEN[:2]):
        frame = frame.f_back
    return frame is not None and str(frame.f_globals.get("__name__", "")).startswith("torch.utils.data")


def _ours() -> bool:
    """Whether the planner itself makes a tensor: the twin of one whose values it follows."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if not name.startswith(_BETWEEN):
            return name.startswith("gpu_plan.")
        frame = frame.f_back
    return False


def _mixes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether tensors of one call lie on meta and, with more than a number in them, on the CPU."""
    kinds = {
        value.device.type
        for value in tree_flatten((args, kwargs))[0]
        if isinstance(value, torch.Tensor) and (value.device.type == "meta" or value.dim() > 0)
    }
    return {"meta", "cpu"} <= kinds


def is_planned(device: Any) -> bool:
    """Whether a device as a script writes it means the planned GPU."""
    if isinstance(device, int) and not isinstance(device, bool):
        return True
    if isinstance(device, (str, torch.device)):
        return str(device).partition(":")[0] in ("cuda", "meta")
    return False


def _any_on_meta(args: tuple[Any, ...]) -> bool:
    return any(isinstance(value, torch.Tensor) and value.is_meta for value in args)


def _is_meta(device: Any) -> bool:
    """Whether it is the word that only the capture itself says."""
    return str(device).partition(":")[0] == "meta"


def _target(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The device that `Tensor.to` is given, in whichever of its forms, and the other arguments."""
    options = dict(kwargs)
    device = options.pop("device", None)
    other = options.pop("other", None)
    rest = args
    if args and isinstance(args[0], torch.Tensor):
        other, rest = args[0], args[1:]
    if other is not None:
        return other.device, (other.dtype, *rest), options
    if args and (isinstance(args[0], (str, torch.device)) or is_planned(args[0])):
        return args[0], args[1:], options
    return device, rest, options


class _Generator(torch.Generator):
    """One of the host, whatever device it is asked for."""

    def __new__(cls, device: Any = "cpu") -> "_Generator":
        made: _Generator = super().__new__(cls, device="cpu")
        return made

    def set_state(self, new_state: torch.Tensor) -> "_Generator":
        """Of a state that ranks were sent (accelerate/utils/random.py: synchronize_rng_state) it is the first's own."""
        return self if new_state.is_meta else super().set_state(new_state)


@contextlib.contextmanager
def ranks_as_devices() -> Iterator[None]:
    """Within, `model.to(rank)` takes a number for a GPU, as it is where there are some (torch/nn/modules/module.py),
    and a generator is made for any device."""
    original = nn.Module.to

    def to(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], int) and not isinstance(args[0], bool):
            args = (torch.device("cuda", args[0]), *args[1:])
        if isinstance(kwargs.get("device"), int):
            kwargs["device"] = torch.device("cuda", kwargs["device"])
        return original(module, *args, **kwargs)

    nn.Module.to = to
    torch.Generator = _Generator
    try:
        yield
    finally:
        torch.Generator = _Generator.__base__
        nn.Module.to = original


def weights_placed(home: Any) -> contextlib.AbstractContextManager[Any]:
    """Fabric refuses an optimizer of meta's parameters, which are on a device for all that the script knows.

    lightning/fabric/utilities/init.py: _has_meta_device_parameters_or_buffers.
    """
    return mock.patch.object(home, "_has_meta_device_parameters_or_buffers", return_value=False)


@contextlib.contextmanager
def parameters_on_meta() -> Iterator[None]:
    """Within, a parameter is on meta from the moment a module registers it: weights take no memory.

    As accelerate's init_on_device (big_modeling.py) does; buffers keep their values until the model is moved.
    """
    register = nn.Module.register_parameter

    def on_meta(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        register(module, name, parameter)
        if parameter is not None and parameter.device.type != "meta":
            module._parameters[name] = parameter_to_meta(parameter)

    nn.Module.register_parameter = on_meta
    try:
        yield
    finally:
        nn.Module.register_parameter = register


def parameter_to_meta(parameter: nn.Parameter) -> nn.Parameter:
    """The same parameter without its values, its class and what hangs on it kept."""
    extra = dict(parameter.__dict__)
    with _disable_current_modes(), torch.no_grad():
        data = torch.empty_like(parameter.data, device=META)
    kind = type(parameter)
    made = (
        kind(data, requires_grad=parameter.requires_grad)
        if kind is nn.Parameter
        else kind._make_subclass(kind, data, parameter.requires_grad)
    )
    made.__dict__.update(extra)
    return made


def settle(model: nn.Module, known: KnownValues) -> None:
    """Moves what a model still has on the CPU to meta, in place."""
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None and parameter.device.type != "meta":
                module._parameters[name] = parameter_to_meta(parameter)
        for name, buffer in list(module._buffers.items()):
            if buffer is not None and buffer.device.type != "meta":
                with _disable_current_modes():
                    moved = torch.empty_like(buffer, device=META)
                remember(known, moved, buffer)
                module._buffers[name] = moved
