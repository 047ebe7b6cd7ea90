"""Keeps torch's own memory history and writes it where an allocation on the device failed (opt-in)."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpu_plan.executor.runner.recorder import Recorder

MAX_ENTRIES = 200_000


class Snapshot:
    """`oom-rank-N.pickle` in the run folder, as https://pytorch.org/memory_viz reads it."""

    def __init__(self, torch: Any, recorder: "Recorder") -> None:
        self._torch, self._recorder = torch, recorder

    def begin(self) -> None:
        """Records allocations from now on. CUDA must be initialised."""
        if self._recorder.options.folder is None:
            return
        try:
            self._torch.cuda.memory._record_memory_history(max_entries=MAX_ENTRIES)
            self._torch._C._cuda_attach_out_of_memory_observer(self._failed)
        except Exception as error:
            self._recorder.failed("memory history", error)

    def _failed(self, device: int, asked: int, device_allocated: int, device_free: int) -> None:
        folder, rank = self._recorder.options.folder, self._recorder.options.rank
        if folder is None:
            return
        path = folder / f"oom-rank-{rank}.pickle"
        try:
            self._torch.cuda.memory._dump_snapshot(str(path))
            self._recorder.note(f"memory history at the failed allocation of {asked} bytes: {path.name}")
        except Exception as error:
            self._recorder.failed("memory snapshot", error)
