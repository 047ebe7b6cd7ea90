"""Captures one region of a model as torch.compile does, and gives back what runs in its place on meta.

AOTAutograd traces forward and backward together, inductor's joint-graph passes and the min-cut partitioner decide
what is saved, and each half is lowered (torch/_inductor/compile_fx.py: _compile_fx_main, partition_fn,
compile_fx_forward, compile_fx_backward). What runs afterwards is AOTAutograd's own runtime, with its autograd node.
The step before it, Dynamo's reading of bytecode, is left out: the module's Python runs once instead, as it does when
nothing is compiled, so a graph break shows as an error here.
"""

import contextlib
import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Literal

import torch
from torch import nn
from torch._dynamo.utils import preserve_rng_state
from torch._functorch import aot_autograd as aot
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext, tracing
from torch._inductor import compile_fx
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.virtualized import V
from torch._ops import resolve_key

from gpu_plan.planner.trace.compile.device import Target, pretended
from gpu_plan.planner.trace.compile.lower import lower, move
from gpu_plan.planner.trace.compile.program import graph_program, load_program

Backend = Literal["inductor", "aot_eager"]
Compiled = Callable[[list[Any]], Any]
"""Takes parameters, buffers and inputs, and returns the outputs; parameters' gradients flow through it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """Which backend compiles, for which device."""

    backend: Backend
    target: Target


def compile_region(region: nn.Module, inputs: Sequence[torch.Tensor], compiler: Compiler) -> Compiled:
    """`region(*inputs)`, which returns a tuple of tensors, compiled; nothing of it is recorded by an active mode."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(preserve_rng_state())
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(pretended(compiler.target))
        _composites_on_meta()
        stack.enter_context(torch._functorch.config.patch(enable_autograd_cache=False))
        decompositions = select_decomp_table() if compiler.backend == "inductor" else None
        state = aot.prepare_aot_module_simplified(
            region, inputs, None, decompositions, True, False, flatten=False, force_non_lazy_backward_lowering=True
        )
        call, flat, _, _, fakes, descriptions, config, mode, shapes, _, _, active = state
        # Dynamo marks parameters and buffers as inputs that stay (variables/builder.py: mark_static_input).
        config = replace(config, static_input_indices=list(range(len(flat))))
        mode.allow_non_fake_inputs = True  # states of the host's random numbers
        stack.enter_context(V.set_fake_mode(mode))
        stack.enter_context(tracing(TracingContext(mode)))
        whole = aot.create_aot_state(stack, call, fakes, descriptions, config, mode, shapes)
        whole.fw_metadata.act_input_indices = active
        graph = aot.aot_stage1_graph_capture(whole, call)
        forward, backward, partition = _stages(compiler, len(inputs))
        compiled, _ = aot.aot_stage2_compile(whole, graph, partition, forward, backward, forward)
    result: Compiled = compiled
    return result


@functools.cache
def _composites_on_meta() -> None:
    """Operators whose Python meta kernels hide from the Python dispatcher that they are made of others.

    torch/_ops.py: resolve_key takes such a kernel for a backend's own, and finds no autograd formula for it.
    """
    key, composite = torch._C.DispatchKey.AutogradMeta, torch._C.DispatchKey.CompositeImplicitAutograd
    for name in torch._C._dispatch_get_all_op_names():
        operator = _overload(name)
        if operator is None or not operator.has_kernel_for_dispatch_key(composite):
            continue
        if resolve_key(operator, key) is key and key not in operator.py_kernels:
            operator.py_impl(key)(functools.partial(operator._op_dk, composite))


def _overload(name: str) -> Any:
    """`aten::nll_loss` as an overload; None for other namespaces."""
    space, _, full = name.partition("::")
    packet, _, overload = full.partition(".")
    if space != "aten" or not hasattr(torch.ops.aten, packet):
        return None
    return getattr(getattr(torch.ops.aten, packet), overload or "default", None)


def _as_it_stands(graph: Any, example_inputs: Any) -> Any:
    return graph_program(graph)


def _stages(compiler: Compiler, num_inputs: int) -> tuple[Any, Any, Any]:
    """Forward compiler, backward compiler and partitioner of a backend."""
    if compiler.backend == "aot_eager":
        # torch/_dynamo/backends/debugging.py: aot_eager.
        return _as_it_stands, _as_it_stands, min_cut_rematerialization_partition
    device = compiler.target.device
    extra = compile_fx.create_compiler_config_extra(SimpleNamespace(meta={}))

    def inner(graph: Any, example_inputs: Any, is_backward: bool = False, **_: Any) -> Any:
        return load_program(lower(graph, example_inputs, device, is_backward=is_backward))

    def forward(graph: Any, example_inputs: Any) -> Any:
        outputs = compile_fx.get_num_model_outputs(graph)
        metadata = TracingContext.get().fw_metadata
        wanted = metadata.num_outputs if metadata is not None else outputs
        return compile_fx.compile_fx_forward(
            graph,
            example_inputs,
            num_orig_model_outputs=min(wanted, outputs),
            num_example_inputs=num_inputs,
            compiler_config_extra=extra,
            inner_compile=inner,
        )

    def backward(graph: Any, example_inputs: Any) -> Any:
        return compile_fx.compile_fx_backward(graph, example_inputs, compiler_config_extra=extra, inner_compile=inner)

    def partition(graph: Any, joint_inputs: Any, **words: Any) -> Any:
        move(graph, device)
        return compile_fx.partition_fn(graph, joint_inputs, **words)

    return forward, backward, partition
