"""Events behind those of a rank's stream, in a segment of their own."""

from dataclasses import field, replace

import numpy as np

from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import IntArray


@dataclass(slots=True)
class Appended:
    """Events and storages behind those of a stream."""

    tensors: int
    """Storages of the stream."""
    sign: list[int] = field(default_factory=list)
    tensor: list[int] = field(default_factory=list)
    fixed: list[int] = field(default_factory=list)
    category: list[int] = field(default_factory=list)
    cuda_stream: list[int] = field(default_factory=list)
    label: list[str] = field(default_factory=list)
    module: list[str] = field(default_factory=list)

    def alloc(self, size: int, category: int, label: str, module: str, cuda_stream: int = 0) -> int:
        """A storage of `size` bytes; its number."""
        tensor = self.tensors + len(self.fixed)
        self.fixed.append(size)
        self.category.append(category)
        self.cuda_stream.append(cuda_stream)
        self.label.append(label)
        self.module.append(module)
        self.sign.append(1)
        self.tensor.append(tensor)
        return tensor

    def free(self, tensor: int) -> None:
        """It goes back."""
        self.sign.append(-1)
        self.tensor.append(tensor)


def _appended_returns(training: RankStream, count: int) -> IntArray | None:
    """What is evaluated comes back at once; what training left waiting does when the host reads the first loss."""
    if training.event_return is None:
        return None
    before = training.event_return.shape[1]
    own = np.tile(np.arange(before, before + count), (len(training.event_return), 1))
    return np.concatenate([training.event_return, own], axis=1)


def next_segment(training: RankStream) -> int:
    """The segment that stands behind all of a stream."""
    return max(int(training.event_segment.max(initial=0)), training.step_segments[-1]) + 1


def joined(training: RankStream, added: Appended) -> RankStream:
    """The stream with what was added as its next segment."""
    count = len(added.sign)
    segment = next_segment(training)

    def column(before: IntArray, more: list[int]) -> IntArray:
        return np.concatenate([before, np.asarray(more, dtype=np.int64)])

    return replace(
        training,
        event_sign=column(training.event_sign, added.sign),
        event_tensor=column(training.event_tensor, added.tensor),
        event_segment=column(training.event_segment, [segment] * count),
        event_return=_appended_returns(training, count),
        event_in_backward=np.concatenate([training.event_in_backward, np.zeros(count, dtype=np.bool_)]),
        fixed=column(training.fixed, added.fixed),
        per_sample=column(training.per_sample, [0] * len(added.fixed)),
        cuda_stream=column(training.cuda_stream, added.cuda_stream),
        category=column(training.category, added.category),
        labels=[*training.labels, *added.label],
        label_modules=[*training.label_modules, *added.module],
    )
