"""Inductor's lowering of one graph to the text of its wrapper, for a device that need not be there.

The steps of torch/_inductor/compile_fx.py, `_InProcessFxCompile.codegen_and_compile`, up to where kernels would be
compiled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._guards import TracingContext, detect_fake_mode
from torch._inductor import compile_fx
from torch._inductor.debug import DebugContext
from torch._inductor.graph import GraphLowering
from torch._inductor.ir import IRNode
from torch._inductor.virtualized import V
from torch.fx import GraphModule
from torch.fx.passes.fake_tensor_prop import FakeTensorProp


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """What inductor made of a graph."""

    source: str
    """The wrapper's text."""
    constants: dict[str, torch.Tensor]
    """Tensors that the text names and does not hold: `PyCodeCache.load_by_key_path` puts them into the module."""


def move(graph: GraphModule, device: torch.device, examples: Sequence[Any] | None = None) -> list[Any]:
    """Puts every tensor of a traced graph on `device`, in place; returns the graph's inputs there, fake.

    `examples`: the inputs as they will be, where the graph's own may lie otherwise.
    """
    known = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
    mode = detect_fake_mode(known)
    inputs = known if examples is None else examples
    assert mode is not None
    for node in graph.graph.nodes:
        where = node.kwargs.get("device")
        if where is not None and torch.device(where).type == "meta":
            node.kwargs = {**node.kwargs, "device": device}
    moved = []
    with mode:
        for value in inputs:
            if isinstance(value, torch.Tensor) and value.device != device:
                value = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
            moved.append(value)
    with torch.no_grad():
        FakeTensorProp(graph, mode=mode).propagate_dont_convert_inputs(*moved)
    return moved


def lower(graph: GraphModule, examples: Sequence[Any], device: torch.device, *, is_backward: bool) -> Lowered:
    """The wrapper, for inputs like `examples`."""
    inputs = move(graph, device, examples)
    compile_fx.view_to_reshape(graph)
    with torch.no_grad():
        mode = compile_fx.fake_tensor_prop(graph, inputs)
    compile_fx._recursive_record_original_output_strides(graph)
    with DebugContext(), V.set_fake_mode(mode):
        compile_fx._recursive_post_grad_passes(graph, is_inference=False)
        with compile_fx.maybe_disable_comprehensive_padding(inputs):
            return _wrapper(graph, inputs, is_backward)


def _wrapper(graph: GraphModule, inputs: Sequence[Any], is_backward: bool) -> Lowered:
    lowering = GraphLowering(
        graph,
        example_inputs=inputs,
        shape_env=graph.shape_env or compile_fx.shape_env_from_inputs(inputs),
        graph_id=0,
        cpp_wrapper=False,
        aot_mode=False,
        is_inference=False,
        is_backward=is_backward,
    )
    lowering.freeze_runtime_asserts()
    with V.set_graph_handler(lowering), V.set_extern_kernel_nodes([]):
        lowering.run(*inputs)
        _report_strides(lowering)
        code, _ = lowering.codegen()
    tensors = {name: value for name, value in lowering.constants.items() if isinstance(value, torch.Tensor)}
    return Lowered(source=code.value, constants=tensors)


def _report_strides(lowering: GraphLowering) -> None:
    """Tells AOTAutograd how outputs lie: padded ones are what backward gets (output_code.py: post_compile)."""
    context = TracingContext.try_get()
    if context is None or context.output_strides is None:
        return
    for output in lowering.graph_outputs or ():
        tensor = isinstance(output, IRNode) and output.has_tensor_output()
        context.output_strides.append(tuple(int(s) for s in output.get_layout().stride) if tensor else None)
