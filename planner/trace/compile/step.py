"""What of a step is compiled, and how it is put there."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch
from torch import nn

from gpu_plan.planner.trace.compile.capture import Compiler
from gpu_plan.planner.trace.compile.device import Target, with_generators
from gpu_plan.planner.trace.compile.regions import Regions, Surroundings
from gpu_plan.planner.trace.folding.fold import PassThrough
from gpu_plan.planner.trace.kernels.temporaries import CudaProfile, KernelProfile
from gpu_plan.planner.trace.layout import layout_of
from gpu_plan.planner.trace.recording.functions import DeviceFunctions
from gpu_plan.planner.trace.recording.modules import ModuleTracker
from gpu_plan.planner.trace.setup.autocast import Autocast
from gpu_plan.planner.trace.variant import Compilation

Forward = Callable[..., Any]


@contextlib.contextmanager
def compiled_step(
    model: nn.Module,
    names: Sequence[str],
    compilation: Compilation,
    profile: KernelProfile,
    functions: DeviceFunctions,
    autocast: Autocast | None,
    tracker: ModuleTracker,
    around_model: Callable[[Forward], Forward],
) -> Iterator[None]:
    """Within, the model's compiled parts, `region_names` of it, run as inductor (or AOTAutograd alone) left them.

    `around_model` is what the stack wraps around the model's forward before it is compiled as a whole: autocast, and
    the conversion of its outputs.
    """

    @contextlib.contextmanager
    def model_code() -> Iterator[None]:
        caching = autocast is not None and autocast.caching
        if autocast is not None:
            autocast.caching = False
        try:
            with functions, said_to_compile():
                yield
        finally:
            if autocast is not None:
                autocast.caching = caching

    around = Surroundings(
        model_code=model_code,
        unrecorded=tracker.quiet,
        state=lambda: str(autocast is not None and autocast.enabled),
    )
    target = Target(capability=None)
    if isinstance(profile, CudaProfile):
        target = Target(capability=profile.capability, sm_count=profile.sm_count)
    regions = Regions(compiler=Compiler(backend=compilation.backend, target=target))
    with contextlib.ExitStack() as stack:
        if compilation.regions == "model" and not compilation.names:
            before = model.forward
            stack.callback(_restore, model, before)
            model.forward = around_model(before)
        names = [name for name in names if not isinstance(model.get_submodule(name), PassThrough)]
        stack.enter_context(with_generators())
        stack.enter_context(regions.installed(model, names, around))
        yield


def region_names(model: nn.Module, compilation: Compilation) -> list[str]:
    """Modules that are compiled on their own.

    `regional` is accelerate utils/other.py: compile_regions: every block of a list of equals, and whatever holds no
    such list. `blocks` leaves the latter as they are, as torchtitan does (parallelize_llama.py: apply_compile).
    """
    if compilation.names:
        return list(compilation.names)
    if compilation.regions == "model":
        return [""]
    if compilation.regions == "blocks":
        return list(layout_of(model).blocks)
    return list(_regional(model, ""))


def _yes() -> bool:
    return True


@contextlib.contextmanager
def said_to_compile() -> Iterator[None]:
    """Within, a model that asks whether it is compiled is told so, as Dynamo would.

    torch/_dynamo/variables/torch.py: tracing_state_functions. transformers then does without what it would read from
    values: it builds attention masks that it otherwise leaves out.
    """
    with contextlib.ExitStack() as stack:
        for name in ("is_compiling", "is_dynamo_compiling"):
            stack.enter_context(mock.patch.object(torch.compiler, name, _yes))
        yield


def _regional(module: nn.Module, name: str) -> Iterator[str]:
    if _is_repeated(module):
        yield from (_joined(name, child) for child, _ in module.named_children())
    elif any(_is_repeated(part) for part in module.modules()):
        for child, part in module.named_children():
            yield from _regional(part, _joined(name, child))
    elif not isinstance(module, (nn.ModuleList, nn.ModuleDict)):
        yield name


def _is_repeated(module: nn.Module) -> bool:
    return isinstance(module, nn.ModuleList) and len(module) > 0 and all(isinstance(m, type(module[0])) for m in module)


def _joined(name: str, child: str) -> str:
    return f"{name}.{child}" if name else child


def _restore(module: nn.Module, before: Any) -> None:
    module.__dict__.pop("forward", None)
    if getattr(before, "__func__", None) is not type(module).forward:
        module.forward = before
