"""Whole gradients that FSDP2 keeps between micro steps in a reduce type of their own.

Mirrors torch/distributed/fsdp/_fully_shard/_fsdp_param.py (torch 2.13): to_accumulated_grad_if_needed,
accumulate_unsharded_grad_if_needed; _fsdp_param_group.py: post_backward.
"""

from collections.abc import Sequence

from planner.memory.stream import Handle, Pass, Point, StreamBuilder
from planner.strategy.base import nbytes
from planner.trace.events import Category, ParameterInfo


class AccumulatedGradients:
    """`unsharded_accumulated_grad` of every parameter; nothing where gradients need no cast to be reduced."""

    def __init__(self, builder: StreamBuilder, reduce: str, gradients: str) -> None:
        self.casts = reduce != gradients
        self._builder = builder
        self._reduce = reduce
        self._held: dict[int, Handle] = {}

    def add(self, at: Point, in_pass: Pass, parameters: Sequence[int]) -> None:
        """Later micro steps' gradients are added to what is held, and go."""
        for index in parameters:
            if index in self._held:
                self._builder.free_gradient(at, in_pass, index)

    def take(self, at: Point, in_pass: Pass, infos: Sequence[ParameterInfo], parameters: Sequence[int]) -> None:
        """After a micro step that reduces nothing, its gradients are cast, one after the other."""
        for index in parameters:
            if self.casts and index not in self._held:
                size = nbytes(infos[index].numel, self._reduce)
                self._held[index] = self._builder.alloc(
                    at, size, Category.GRADIENTS, "accumulated gradient", infos[index].name
                )
                self._builder.free_gradient(at, in_pass, index)

    def drop(self, at: Point, index: int) -> bool:
        """Gives back what is held for a parameter; false where nothing is."""
        handle = self._held.pop(index, None)
        if handle is not None:
            self._builder.free(at, handle)
        return handle is not None
