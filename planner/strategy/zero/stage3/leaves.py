"""ZeRO-3's leaf modules: mixtures of experts that are gathered, and whose gradients are reduced, as one.

Mirrors deepspeed 0.19.8 runtime/zero/leaf_module_config.py (DEFAULT_LEAF_MODULE_CLASSES), which the engine applies
unless its configuration names others; parameter_offload.py: _register_deepspeed_module gives such a module's children
no hooks, and stage3.py: create_reduce_and_remove_grad_hooks reduces its gradients when its own backward is over.
"""

from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.remembered import of_trace

_BLOCKS = frozenset({"MixtralDecoderLayer", "Qwen2MoeDecoderLayer", "Qwen3MoeDecoderLayer"})
"""transformers' layers whose `mlp` is, where it has experts, of a class that DeepSpeed lists."""


@of_trace
def leaf_modules(trace: StepTrace) -> frozenset[str]:
    """Names of the model's leaf modules."""
    known = set(trace.modules)
    named = zip(trace.layout.blocks, trace.layout.block_classes, strict=False)
    return frozenset(f"{block}.mlp" for block, kind in named if kind in _BLOCKS and f"{block}.mlp.experts" in known)


def leaf_of(module: str, leaves: frozenset[str]) -> str | None:
    """The leaf module that `module` is or lies in, None outside of all."""
    while module:
        if module in leaves:
            return module
        module = module.rpartition(".")[0]
    return None


@of_trace
def leaf_parameters(trace: StepTrace) -> dict[int, tuple[int, ...]]:
    """Parameters of every leaf module, by the module's number."""
    leaves = leaf_modules(trace)
    if not leaves:
        return {}
    found: dict[str, list[int]] = {}
    for index, parameter in enumerate(trace.parameters):
        leaf = leaf_of(parameter.module, leaves)
        if leaf is not None:
            found.setdefault(leaf, []).append(index)
    return {trace.modules.index(name): tuple(indices) for name, indices in found.items()}
