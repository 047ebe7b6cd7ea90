"""The block that a test measures: `with plan_memory(gpu="A100-40GB") as memory:`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from gpu_plan.executor.pytest_plugin.limit import (
    DEFAULT_GPU,
    KINDS,
    TASKS,
    Limit,
    known_gpu,
    limit_bytes,
    one_line_failure,
    one_of,
)
from gpu_plan.executor.pytest_plugin.measured import Measured, measured
from gpu_plan.executor.pytest_plugin.valueless import needs_values
from gpu_plan.executor.pytest_plugin.words import failure
from gpu_plan.planner.errors import PlanError

if TYPE_CHECKING:
    from gpu_plan.planner.capture.block.capture import BlockCapture
    from gpu_plan.planner.capture.block.result import BlockMemory
    from gpu_plan.planner.memory.profile import StandingTensor


class MemoryLimitError(AssertionError):
    """A block takes more memory than it may."""


class PlanMemory:
    """What runs between `__enter__` and `__exit__` is recorded on meta; the figures are there afterwards.

    Models, tensors and optimizers that are made inside are made on the planned GPU; models from outside are lent to
    it and come back with their values. A backward pass is expected (`task="infer"`: a call of a model). Figures are
    those of the block as it is written: to see optimizer state beside activations, run two steps.
    """

    def __init__(
        self,
        gpu: str | None = None,
        *,
        task: str = "train",
        home: Path | None = None,
        done: Callable[[Measured], None] = lambda _: None,
        failed: Callable[[tuple[str, ...]], None] = lambda _: None,
    ) -> None:
        """`home`: folder of the files whose lines are named; `done` is told the figures when the block ends.

        `failed` is told, where it ends with an exception, which values it read and was told of.
        """
        self.limited_to: Limit | None = None
        """A limit that is known before the block runs."""
        try:
            self._gpu = known_gpu(DEFAULT_GPU if gpu is None else gpu)
            self._training = one_of("task", task, TASKS) == "train"
        except PlanError as problem:
            raise self._failure(f"{problem}") from None
        self._home = Path.cwd() if home is None else home
        self._done, self._failed = done, failed
        self._capture: BlockCapture | None = None
        self._memory: BlockMemory | None = None
        self.answered: tuple[str, ...] = ()
        """Values that the block read, with what it was told of each."""

    # -- the block -------------------------------------------------------------------------------------

    def __enter__(self) -> "PlanMemory":
        from gpu_plan.planner.capture.block.capture import BlockCapture

        if self._capture is not None:
            raise self._failure("a block is measured once: call plan_memory(...) again for another") from None
        try:
            self._capture = BlockCapture(self._gpu, self._home)
            self._capture.start()
        except PlanError as problem:
            raise self._failure(f"{problem}") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._capture is not None
        self._capture.stop()
        self.answered = self._capture.host_reads
        if isinstance(problem, PlanError):
            raise self._failure(f"{problem}") from None
        if problem is not None:
            said = needs_values(problem, self._home)
            if said is not None:
                raise self._failure(said) from None
            self._failed(self.answered)
            return
        try:
            self._memory = self._capture.memory(training=self._training)
        except PlanError as wrong:
            raise self._failure(f"{wrong}") from None
        self._done(self._measured(self.limited_to))

    # -- figures ---------------------------------------------------------------------------------------

    @property
    def result(self) -> "BlockMemory":
        """All figures, in bytes."""
        if self._memory is None:
            raise self._failure("figures are there when the block has ended: read them after the `with`") from None
        return self._memory

    @property
    def peak_allocated(self) -> int:
        """Bytes that `torch.cuda.max_memory_allocated()` would give."""
        return self.result.peak_allocated_bytes

    @property
    def peak_reserved(self) -> int:
        """Bytes that `torch.cuda.max_memory_reserved()` would give."""
        return self.result.peak_reserved_bytes

    @property
    def device_used(self) -> int:
        """Bytes that nvidia-smi would show: reserved, and CUDA's context."""
        return self.result.device_used_bytes

    @property
    def at_end(self) -> int:
        """Bytes still allocated when the block ended."""
        return self.result.at_end_bytes

    @property
    def fits(self) -> bool:
        """Whether the block runs to its end on the GPU."""
        return self.result.fits

    @property
    def at_peak(self) -> Mapping[str, int]:
        """Bytes at the peak by category; they sum to `peak_allocated`."""
        return self.result.at_peak

    @property
    def phase_of_peak(self) -> str:
        """`load`, `forward`, `backward` or `optimizer step`."""
        return self.result.phase_of_peak

    @property
    def phases(self) -> Mapping[str, int]:
        """Peak bytes of each phase."""
        return self.result.phase_peaks

    def largest(self, count: int = 10) -> "tuple[StandingTensor, ...]":
        """The largest tensors at the peak, with category, module, operator, shape and file:line."""
        return self.result.tensors[:count]

    def limit(self, limit: str | int, *, of: str = "allocated") -> None:
        """MemoryLimitError, an AssertionError, where the block takes more than `limit`, such as `"14 GiB"`.

        `of`: `allocated`, `reserved` or `device`.
        """
        __tracebackhide__ = True
        try:
            wanted = Limit(nbytes=limit_bytes(limit), gpu=self._gpu, of=one_of("of", of, KINDS))
        except PlanError as problem:
            raise self._failure(f"{problem}") from None
        found = self._measured(wanted)
        if found.exceeds:
            raise MemoryLimitError(failure(found))

    def hold(self) -> None:
        """Fails the test, without a traceback, where the block took more than `limited_to`."""
        found = self._measured(self.limited_to)
        if found.exceeds:
            raise self._failure(failure(found))

    def _measured(self, limit: Limit | None) -> Measured:
        limits = (None, "allocated") if limit is None else (limit.nbytes, limit.of)
        return measured(self.result, *limits)

    def _failure(self, message: str) -> BaseException:
        return one_line_failure(f"{'plan_memory' if self.limited_to is None else 'limit_gpu_memory'}: {message}")
