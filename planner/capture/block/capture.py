"""Records a block of this process and says what it takes of a GPU."""

import contextlib
from pathlib import Path

from gpu_plan.planner.capture.block.gpu import one_gpu
from gpu_plan.planner.capture.block.result import BlockFacts, BlockMemory, block_memory
from gpu_plan.planner.capture.block.stream import block_stream
from gpu_plan.planner.capture.block.world import BlockWorld
from gpu_plan.planner.capture.job import planned_device
from gpu_plan.planner.errors import InputError, UsageError

_OPEN: list["BlockCapture"] = []


class BlockCapture:
    """One block: `start`, run it, `stop`, `memory`."""

    def __init__(self, gpu: str, home: Path) -> None:
        """`gpu`: one GPU by name; `home`: the folder of the user's own files. InputError or UsageError in one line."""
        self._cluster = one_gpu(gpu)
        self._world = BlockWorld(planned_device(self._cluster), home)
        self._stack = contextlib.ExitStack()

    def start(self) -> None:
        """From here on, this thread runs on meta. UsageError inside another block."""
        if _OPEN:
            raise UsageError("a measured block stands inside another: measured blocks do not nest")
        self._stack.enter_context(self._world.open())
        _OPEN.append(self)

    def stop(self) -> None:
        """Takes everything down again."""
        if self in _OPEN:
            _OPEN.remove(self)
        self._stack.close()

    @property
    def host_reads(self) -> tuple[str, ...]:
        """Each value that was read so far, with what the block was told and what that assumes."""
        return tuple(self._world.reads.answered())

    def memory(self, *, training: bool = True) -> BlockMemory:
        """Figures of the block. InputError in one line where nothing ran that they could be of.

        `training`: whether a backward pass is expected; otherwise one call of a model is enough.
        """
        hooks, recorder = self._world.hooks, self._world.recorder
        if not hooks.forward_passes and not hooks.backward_passes:
            raise InputError("nothing to measure: no model was called inside the block")
        if training and not hooks.backward_passes:
            raise InputError(
                "nothing was trained inside the block: no backward pass; task='infer' measures forward alone"
            )
        raw = recorder.finish()
        facts = BlockFacts(
            models=tuple(hooks.models),
            optimizers=tuple(hooks.optimizers),
            forward_passes=hooks.forward_passes,
            backward_passes=hooks.backward_passes,
            steps=hooks.steps,
            host_reads=self.host_reads,
        )
        names = {index: tensor.name for index, tensor in enumerate(raw.tensors) if tensor.name}
        return block_memory(block_stream(raw), names, self._cluster, facts)
