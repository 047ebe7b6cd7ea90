"""A parameter as one rank's optimizer sees it."""

from enum import StrEnum
from typing import NamedTuple

from gpu_plan.planner.dtypes import element_bits
from gpu_plan.planner.units import ceil_div


class Role(StrEnum):
    """What a parameter does in the model, where an optimizer treats it by that."""

    HIDDEN = "hidden"
    EMBEDDING = "embedding"
    """Input embeddings, tied or not."""
    HEAD = "head"
    """The untied output embedding."""


class LocalTensor(NamedTuple):
    """A parameter, or its shard, as the optimizer sees it: a named tuple, for every rank that is laid out makes one of
    each."""

    name: str
    numel: int
    dtype: str
    shape: tuple[int, ...] = ()
    """Shape where it still has its own; empty for one dimension of `numel`."""
    role: Role = Role.HIDDEN
    group: int = 0
    """Number of its parameter group, where parameters cannot be stepped together: DTensors of several meshes."""
    undecayed: bool = False
    """Whether its loop puts it into a group of its own, which has no weight decay and is stepped behind the others."""

    @property
    def is_embedding(self) -> bool:
        return self.role is Role.EMBEDDING

    @property
    def is_hidden(self) -> bool:
        return self.role is Role.HIDDEN

    @property
    def nbytes(self) -> int:
        return self.as_dtype(self.dtype)

    @property
    def dims(self) -> tuple[int, ...]:
        return self.shape or (self.numel,)

    def as_dtype(self, dtype: str) -> int:
        """Bytes of a tensor of this size in another dtype."""
        return ceil_div(self.numel * element_bits(dtype), 8)
