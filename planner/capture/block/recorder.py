"""Records a whole block: parameters as they are made, every pass, every optimizer step."""

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any

import torch

from gpu_plan.planner.trace.events import CATEGORY_INDEX, Category, Kind
from gpu_plan.planner.trace.kernels.temporaries import KernelProfile
from gpu_plan.planner.trace.recording.host_reads import HostReads
from gpu_plan.planner.trace.recording.modules import BACKWARD, ModuleTracker
from gpu_plan.planner.trace.recording.recorder import RawTensor, Recorder

_PRODUCTS = frozenset(
    {"mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "dot", "_grouped_mm", "_scaled_mm", "_addmm_activation"}
)
"""What cuBLAS computes."""
_COPIES = frozenset({"clone", "_to_copy"})
_KEPT = (CATEGORY_INDEX[Category.PARAMETERS], CATEGORY_INDEX[Category.BUFFERS])
WORKSPACE = "cuBLAS workspace"


class BlockMark(IntEnum):
    """Points of a block, as subjects of MARK events."""

    FORWARD = 0
    """A model is called from outside."""
    BACKWARD = 2
    BACKWARD_END = 3
    STEP = 4
    """An optimizer begins its step."""
    STEP_END = 5


class BlockRecorder(Recorder):
    """Dispatch mode of a block; what it is shown but did not see being made was there before."""

    def __init__(
        self,
        modules: ModuleTracker,
        profile: KernelProfile,
        host_reads: HostReads,
        origin: Callable[[], str],
        workspace: int,
    ) -> None:
        """`workspace`: bytes that cuBLAS takes for each thread that multiplies, 0 where there is no CUDA."""
        super().__init__(modules, profile, host_reads, origin=origin)
        self._workspace = workspace
        self._with_workspace: set[bool] = set()

    def point(self, mark: BlockMark) -> None:
        """Notes a point of the block."""
        self._event(Kind.MARK, mark)

    def adopt(self, tensors: Iterable[torch.Tensor]) -> None:
        """Gives storages that were made elsewhere their place on the device from now on, as inputs."""
        for tensor in tensors:
            if tensor.device.type == "meta" and self._id_of(tensor) < 0:
                # Not held here: an adopted storage dies when the program lets go of it.
                self._allocate(tensor, "made before", 0, 0)
                self.assign(tensor, Category.INPUTS)

    def assign(self, tensor: torch.Tensor, category: Category, name: str = "") -> None:
        """Says what the storage of `tensor` is, if it is on the device."""
        tid = self._id_of(tensor)
        if tid >= 0:
            self.raw.tensors[tid].category = CATEGORY_INDEX[category]
            self.raw.tensors[tid].name = name or self.raw.tensors[tid].name

    def finished_gradient(self, gradient: torch.Tensor, name: str) -> None:
        """Says that `gradient` is what a backward pass leaves for the parameter `name`."""
        self.assign(gradient, Category.GRADIENTS, name)
        tid = self._id_of(gradient)
        if tid >= 0:
            self.raw.tensors[tid].parameter = 0  # some parameter: a sum that is written in place keeps what it is

    def name_of(self, tensor: torch.Tensor) -> str:
        """What the storage of `tensor` was called, or nothing."""
        tid = self._id_of(tensor)
        return self.raw.tensors[tid].name if tid >= 0 else ""

    def _note_operator(
        self,
        func: Any,
        name: str,
        where: int,
        phase: int,
        reads: list[torch.Tensor],
        written: list[torch.Tensor],
        args: tuple[Any, ...],
        flops: int,
        moved: int,
    ) -> None:
        self.adopt(reads)
        if name in _COPIES and where == 0:
            self._follow_copy(reads, written)
        elif where == 0 and phase != BACKWARD and not reads:
            for tensor in written:
                self.assign(tensor, Category.INPUTS)
        if name in _PRODUCTS:
            self._take_workspace(where, backward=phase != 0)
        super()._note_operator(func, name, where, phase, reads, written, args, flops, moved)

    def _follow_copy(self, reads: list[torch.Tensor], written: list[torch.Tensor]) -> None:
        """A copy of a weight that the program makes outside of any model, in another type or a second time."""
        source = self._id_of(reads[0]) if reads else -1
        if source < 0 or torch.is_grad_enabled():
            return
        copied = self.raw.tensors[source]
        for tensor in written:
            tid = self._id_of(tensor)
            if copied.category in _KEPT and tid >= 0:
                self.raw.tensors[tid].category = copied.category
                self.raw.tensors[tid].name = copied.name

    def _take_workspace(self, where: int, *, backward: bool) -> None:
        """Autograd runs backward on a thread of its own, with a handle and a workspace of its own; both stay."""
        if not self._workspace or backward in self._with_workspace:
            return
        self._with_workspace.add(backward)
        tid = len(self.raw.tensors)
        self.raw.tensors.append(
            RawTensor(
                nbytes=self._workspace,
                shape=(self._workspace,),
                dtype="uint8",
                category=CATEGORY_INDEX[Category.TEMPORARY],
                module=where,
                operator=f"{WORKSPACE} ({'backward' if backward else 'forward'})",
            )
        )
        self._event(Kind.ALLOC, tid)
