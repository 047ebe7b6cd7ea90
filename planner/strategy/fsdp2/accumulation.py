"""Whole gradients that FSDP2 keeps between micro steps in a reduce type of their own.

Mirrors torch/distributed/fsdp/_fully_shard/_fsdp_param.py (torch 2.13): to_accumulated_grad_if_needed,
accumulate_unsharded_grad_if_needed; _fsdp_param_group.py: post_backward.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.memory.stream.moments import Pass, Point
from gpu_plan.planner.strategy.base import RankContext
from gpu_plan.planner.trace.events import Category, ParameterInfo

if TYPE_CHECKING:
    from gpu_plan.planner.memory.stream.placing import Handle


def refuses_reduce(gradients: str, context: RankContext) -> str | None:
    """Why gradients of a type are not reduced in the type that is set, or None.

    pytorch aten/src/ATen/native/cuda/TensorShape.cu: _chunk_cat_out_cuda casts bf16 to fp32 on the way into the
    reduce-scatter's input; any other cast takes the generic path with copies of its own, which are not modelled.
    """
    reduce = context.setting("dtype.reduce", gradients)
    if reduce == gradients or (gradients, reduce) == ("bfloat16", "float32"):
        return None
    return f"reducing {gradients} gradients in {reduce} is not in this version: only bfloat16 ones in float32"


class AccumulatedGradients:
    """`unsharded_accumulated_grad` of every parameter; nothing where gradients need no cast to be reduced."""

    def __init__(self, builder: StreamBuilder, *, casts: bool) -> None:
        self.casts = casts
        self._builder = builder
        self._held: dict[int, Handle] = {}

    @property
    def holds(self) -> bool:
        """Whether anything is held."""
        return bool(self._held)

    def add(self, at: Point, in_pass: Pass, parameters: Sequence[int]) -> None:
        """Later micro steps' gradients are added to what is held, and go."""
        for index in parameters:
            if index in self._held:
                self._builder.free_gradient(at, in_pass, index)

    def take(
        self,
        at: Point,
        in_pass: Pass,
        infos: Sequence[ParameterInfo],
        sizes: Sequence[int],
        parameters: Sequence[int],
    ) -> None:
        """After a micro step that reduces nothing, its gradients are cast, one after the other; `sizes`: bytes of each
        parameter's gradient in the reduce type."""
        for index in parameters:
            if self.casts and index not in self._held:
                self._held[index] = self._builder.alloc(
                    at, sizes[index], Category.GRADIENTS, "accumulated gradient", infos[index].name
                )
                self._builder.free_gradient(at, in_pass, index)

    def drop(self, at: Point, index: int) -> bool:
        """Gives back what is held for a parameter; false where nothing is."""
        handle = self._held.pop(index, None)
        if handle is not None:
            self._builder.free(at, handle)
        return handle is not None
