"""Records what the real liger-kernel package allocates, for tests/accuracy/test_liger.py.

    pip install --no-deps --target FOLDER liger-kernel==0.8.5
    python -m benchmarks.real.liger_reference FOLDER

Needs no GPU: the package's Python runs on the meta device with a stand-in for Triton, whose kernels write into
tensors that the Python around them made. Where that Python asks whether the device is CUDA, it is told that meta is.
"""

import argparse
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import json
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn

from gpu_plan.planner.trace.kernels.liger.loss import LigerDevice, next_power_of_2
from gpu_plan.planner.units import ceil_div
from tests.accuracy.liger_cases import GOLDEN, LigerCase, built, cases, stream, traced


class _Anything(types.ModuleType):
    """A module whose every attribute is another such module, and which can be called."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        child = _Anything(f"{self.__name__}.{name}")
        setattr(self, name, child)
        return child

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __or__


class _Kernel:
    """A Triton kernel that does nothing."""

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, **kwargs: None

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        return None


def _jit(function: Any = None, **_: Any) -> Any:
    return _Kernel() if function is not None else (lambda inner: _Kernel())


def _triton() -> dict[str, Any]:
    triton = _Anything("triton")
    triton.__version__ = "3.5.0"
    language = triton.language
    language.constexpr = type("constexpr", (), {"__init__": lambda self, value=None: setattr(self, "value", value)})
    for name, value in {
        "jit": _jit,
        "autotune": lambda *args, **kwargs: lambda function: function,
        "heuristics": lambda *args, **kwargs: lambda function: function,
        "Config": lambda *args, **kwargs: None,
        "cdiv": ceil_div,
        "next_power_of_2": next_power_of_2,
    }.items():
        setattr(triton, name, value)
    names = ("extra", "extra.libdevice", "extra.cuda", "extra.cuda.libdevice", "math")
    found = {"triton": triton, "triton.language": language}
    return found | {f"triton.language.{name}": _Anything(f"triton.language.{name}") for name in names}


class _AsOnCuda(importlib.abc.MetaPathFinder, importlib.machinery.SourceFileLoader):
    """Loads the package's operators with their questions about the device turned to meta."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if not fullname.startswith("liger_kernel.ops."):
            return None
        file = self._folder.joinpath(*fullname.split(".")).with_suffix(".py")
        if not file.exists():
            return None
        importlib.machinery.SourceFileLoader.__init__(self, fullname, str(file))
        return importlib.machinery.ModuleSpec(fullname, _Turned(fullname, str(file)), origin=str(file))


class _Turned(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> Any:
        text = Path(self.path).read_text()
        for sign in ("==", "!="):
            text = text.replace(f'device.type {sign} "cuda"', f'device.type {sign} "meta"')
        return compile(text, self.path, "exec")


def _addmm(real: Any) -> Any:
    """Products added to an fp32 accumulator exist on CUDA only; they allocate nothing."""

    def addmm(*args: Any, out_dtype: Any = None, out: Any = None, **kwargs: Any) -> Any:
        return real(*args, out=out, **kwargs) if out_dtype is None else out.zero_()

    return addmm


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """The loss comes last: its gradient is one."""
    torch.eq(one, other)
    return True


@contextlib.contextmanager
def real_package(folder: Path) -> Iterator[Any]:
    """liger_kernel's monkey_patch module, on meta."""
    device = LigerDevice()
    properties = types.SimpleNamespace(multi_processor_count=device.sm_count)
    with (
        mock.patch.dict(sys.modules, _triton()),
        mock.patch.object(sys, "path", [str(folder), *sys.path]),
        mock.patch.object(sys, "meta_path", [_AsOnCuda(folder), *sys.meta_path]),
        mock.patch.object(torch.cuda, "get_device_properties", return_value=properties),
        mock.patch.object(torch.cuda, "get_device_capability", return_value=device.capability),
        mock.patch.object(torch, "equal", _equal),
        mock.patch.object(torch, "addmm", _addmm(torch.addmm)),
    ):
        yield importlib.import_module("liger_kernel.transformers.monkey_patch")


def record(case: LigerCase, patcher: Any) -> dict[str, Any]:
    """The stream of one case under the real package; what it patched is put back."""
    model: nn.Module = built(case)
    home = sys.modules[type(model).__module__]
    before = dict(vars(home))
    own_loss = torch.nn.functional.cross_entropy
    layers, loss = "layers" in case.fused, "loss" in case.fused
    wanted = {"rope": layers, "rms_norm": layers, "swiglu": layers, "geglu": layers}
    # granite has no fused linear cross entropy: there the plain one is on unless it is declined.
    wanted["cross_entropy"] = loss and case.model == "granite"
    wanted["fused_linear_cross_entropy"] = loss and case.model != "granite"
    try:
        patcher._apply_liger_kernel_to_instance(model, **wanted)
        return stream(traced(model, case, mirrored=False))
    finally:
        torch.nn.functional.cross_entropy = own_loss
        for name, value in before.items():
            setattr(home, name, value)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where liger-kernel is installed")
    folder = parser.parse_args(words).folder
    # Their own probes for Triton must not see the stand-in.
    importlib.import_module("peft")
    built(cases()[0])
    with real_package(folder) as patcher:
        streams = {case.label: record(case, patcher) for case in cases()}
        version = importlib.import_module("importlib.metadata").distributions(name="liger-kernel", path=[str(folder)])
        name = f"liger-kernel {next(iter(version)).version}"
    GOLDEN.write_text(json.dumps({"made_by": name, "streams": streams}, indent=1) + "\n")
    print(f"{len(streams)} streams of {name} written to {GOLDEN}")


if __name__ == "__main__":
    main()
