"""`torchvision.transforms` where torchvision is not installed: pictures get the shapes that training scripts give them.
Beside them one class of its operators, and names of data sets, for timm.

Served to the user's own files and timm's alone; whatever else asks whether torchvision is there is told that it is not.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, cast

from gpu_plan.planner.capture.standin.frozen_norm import frozen_batch_norm
from gpu_plan.planner.capture.standin.told import Told

_ROOT = "torchvision"
_OPS = ("torchvision.ops", "torchvision.ops.misc")
"""Of which a stand-in has one class, that timm's layers compare with."""
_SERVED = (_ROOT, "torchvision.transforms", "torchvision.transforms.v2", "torchvision.transforms.functional", *_OPS)
_OF_ITSELF = "timm"
"""A package that asks for more at its import, whoever uses it."""
_DATASETS = "torchvision.datasets"
"""Names alone, for that package: a script that opens one is told."""
Size = int | Sequence[int]


def stand_in_for_transforms(told: Told) -> None:
    """For the rest of the process, where torchvision is not installed."""
    find = importlib.util.find_spec
    if find(_ROOT) is not None:
        return

    def find_spec(name: str, package: str | None = None) -> Any:
        return None if name.partition(".")[0] == _ROOT else find(name, package)

    importlib.util.find_spec = find_spec
    sys.meta_path.append(_Finder(told))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, told: Told) -> None:
        self._told = told

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        parts = _asking()
        itself = _OF_ITSELF in parts
        if not (name in _SERVED and (itself or _is_users(parts))) and not (name == _DATASETS and itself):
            return None
        self._told.need("torchvision (whose transforms alone can be stood in for, and what timm imports)")
        if name in _OPS:
            self._told.tell("torchvision is not installed: its FrozenBatchNorm2d, which timm imports, is a stand-in")
        else:
            self._told.tell(
                "torchvision is not installed: its transforms are stand-ins that give pictures their shapes"
            )
        return importlib.machinery.ModuleSpec(name, _Loader(), is_package=True)


class _Loader(importlib.abc.Loader):
    def exec_module(self, module: ModuleType) -> None:
        module.__path__ = []
        last = module.__name__.rpartition(".")[2]
        if module.__name__ == _DATASETS:
            vars(module)["__getattr__"] = _unopened
        elif module.__name__ in _OPS:
            vars(module)["FrozenBatchNorm2d"] = frozen_batch_norm()
        elif last == "functional":
            vars(module).update(_FUNCTIONS, InterpolationMode=_Interpolation)
        elif last != _ROOT:
            vars(module).update({kind.__name__: kind for kind in _TRANSFORMS}, InterpolationMode=_Interpolation)
            functional = ModuleType("torchvision.transforms.functional")
            vars(functional).update(_FUNCTIONS, InterpolationMode=_Interpolation)
            vars(module)["functional"] = functional


def _asking() -> tuple[str, ...]:
    """Parts of the path of the file in which the import stands."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return () if frame is None else Path(frame.f_code.co_filename).parts


def _is_users(parts: tuple[str, ...]) -> bool:
    return bool(parts) and "site-packages" not in parts and "importlib" not in parts


def _unopened(name: str) -> type[Any]:
    """A data set's name. AttributeError for what is none."""
    if name.startswith("__"):
        raise AttributeError(name)

    class Unopened:
        def __init__(self, *_: Any, **__: Any) -> None:
            raise ImportError(f"torchvision is not installed: its data set {name} has no stand-in")

    return Unopened


class _Interpolation:
    """PIL.Image.Resampling under torchvision's names, by attribute and by word."""

    NEAREST, BILINEAR, BICUBIC, LANCZOS = "nearest", "bilinear", "bicubic", "lanczos"
    BOX, HAMMING = "box", "hamming"

    def __new__(cls, word: str) -> str:  # type: ignore[misc]
        return word


def _pair(size: Size) -> tuple[int, int]:
    """Height and width."""
    if isinstance(size, int):
        return size, size
    first, *rest = size
    return first, rest[0] if rest else first


def _is_tensor(picture: Any) -> bool:
    return hasattr(picture, "shape") and hasattr(picture, "dim")


def _height_and_width(picture: Any) -> tuple[int, int]:
    if _is_tensor(picture):
        return int(picture.shape[-2]), int(picture.shape[-1])
    return int(picture.height), int(picture.width)


def resize(picture: Any, size: Size, *_: Any, **__: Any) -> Any:
    """One number is that of the shorter side."""
    height, width = _height_and_width(picture)
    if isinstance(size, int) or len(size) == 1:
        short = size if isinstance(size, int) else size[0]
        height, width = (
            (round(height * short / width), short) if width <= height else (short, round(width * short / height))
        )
    else:
        height, width = _pair(size)
    if _is_tensor(picture):
        from torch.nn.functional import interpolate

        return interpolate(picture.unsqueeze(0).float(), (height, width)).squeeze(0)
    return picture.resize((width, height))


def crop(picture: Any, top: int, left: int, height: int, width: int) -> Any:
    """A part of it; what lies beyond the edges is black."""
    if _is_tensor(picture):
        return picture[..., top : top + height, left : left + width]
    return picture.crop((left, top, left + width, top + height))


def center_crop(picture: Any, size: Size) -> Any:
    """The middle of it."""
    (height, width), (own_height, own_width) = _pair(size), _height_and_width(picture)
    return crop(picture, max(0, (own_height - height) // 2), max(0, (own_width - width) // 2), height, width)


def hflip(picture: Any) -> Any:
    """Left and right change places."""
    return picture.flip(-1) if _is_tensor(picture) else picture.transpose(0)


def to_tensor(picture: Any) -> Any:
    """float32 [channels, height, width] between 0 and 1."""
    return pil_to_tensor(picture).float() / 255


def pil_to_tensor(picture: Any) -> Any:
    """uint8 [channels, height, width]."""
    import numpy as np
    import torch

    values = torch.from_numpy(np.array(picture))
    return (values.unsqueeze(-1) if values.dim() == 2 else values).permute(2, 0, 1).contiguous()


def normalize(picture: Any, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> Any:
    """Each channel by its own mean and deviation; one of them stands for all."""
    import torch

    return (picture - torch.tensor(mean).view(-1, 1, 1)) / torch.tensor(std).view(-1, 1, 1)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function for function in (resize, crop, center_crop, hflip, to_tensor, pil_to_tensor, normalize)
}


class Compose:
    """One after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, picture: Any) -> Any:
        for transform in self.transforms:
            picture = transform(picture)
        return picture


class Lambda:
    """A function of the user's."""

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        self.lambd = lambd

    def __call__(self, picture: Any) -> Any:
        return self.lambd(picture)


class _Applied:
    """A function with its arguments, which the picture comes before."""

    function: Callable[..., Any]

    def __init__(self, *words: Any, **more: Any) -> None:
        self.words, self.more = words, more
        self.size = words[0] if words else more.get("size")

    def __call__(self, picture: Any) -> Any:
        return type(self).function(picture, *self.words, **self.more)


class Resize(_Applied):
    function = staticmethod(resize)


class CenterCrop(_Applied):
    function = staticmethod(center_crop)


class Normalize(_Applied):
    function = staticmethod(normalize)


class ToTensor(_Applied):
    function = staticmethod(to_tensor)


class PILToTensor(_Applied):
    function = staticmethod(pil_to_tensor)


class RandomCrop(_Applied):
    """A part of it somewhere."""

    function = staticmethod(center_crop)

    @staticmethod
    def get_params(picture: Any, size: Size) -> tuple[int, int, int, int]:
        """Top, left, height and width of a part."""
        (height, width), (own_height, own_width) = _pair(size), _height_and_width(picture)
        top, left = random.randint(0, max(0, own_height - height)), random.randint(0, max(0, own_width - width))
        return top, left, height, width


class RandomResizedCrop(_Applied):
    """A part of it, at the size."""

    def __call__(self, picture: Any) -> Any:
        return resize(picture, _pair(cast("Size", self.size)))


class RandomHorizontalFlip(_Applied):
    """Left and right may change places."""

    def __call__(self, picture: Any) -> Any:
        return hflip(picture) if random.random() < 0.5 else picture


class ConvertImageDtype(_Applied):
    """Another type; whole numbers become values between 0 and 1."""

    def __call__(self, picture: Any) -> Any:
        dtype = self.words[0]
        return picture.to(dtype) / 255 if dtype.is_floating_point and not picture.is_floating_point() else picture


_TRANSFORMS: tuple[type[Any], ...] = (
    Compose, Lambda, Resize, CenterCrop, Normalize, ToTensor, PILToTensor, RandomCrop, RandomResizedCrop,
    RandomHorizontalFlip, ConvertImageDtype,
)  # fmt: skip
