"""What an evaluation keeps of its batches and what it does not make again, by hand."""

import numpy as np

from gpu_plan.planner.memory.evaluation import Evaluated, with_evaluation
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.trace.events import Category, Mark
from tests.support.tiny_trace import ACTIVATION
from tests.unit.memory.test_stream import kept_outputs

TRACE = kept_outputs()
"""Its step leaves an output of one activation for each sample."""


def stream(*labels: str) -> RankStream:
    """A training or evaluating rank that makes these, a kibibyte each, in every forward pass."""
    builder = StreamBuilder(TRACE, 1)
    for in_pass in builder.passes:
        for label in labels:
            made = builder.alloc(builder.at_mark(in_pass, Mark.FORWARD), 1024, Category.COMMUNICATION, label)
            builder.free(builder.at_end(in_pass), made)
    return builder.build()


def evaluated(*labels: str, **asked: int | bool) -> dict[str, list[int]]:
    """Bytes of every storage that two samples' evaluation makes, by label."""
    whole: dict[str, int | bool] = {"batch": 2, "batches": 3, "ranks": 1, "keeps": False, "concatenates": False}
    joined = with_evaluation(stream(*labels), stream(*labels), Evaluated(**{**whole, **asked}))  # type: ignore[arg-type]
    made = (joined.event_segment == joined.evaluation_segment) & (joined.event_sign > 0)
    traced = joined.trace.num_tensors * joined.num_passes
    sizes, found = joined.requested(2), dict[str, list[int]]()
    for tensor in joined.event_tensor[made].tolist():
        found.setdefault(joined.labels[tensor - traced], []).append(int(sizes[tensor]))
    return found


def test_logits_of_every_rank_are_kept_batch_by_batch() -> None:
    """Of three batches two are kept when the last one's are gathered; of each every rank's two samples."""
    for ranks in (1, 4):
        gathered = 2 * ACTIVATION * ranks
        found = evaluated(ranks=ranks, keeps=True)
        assert found["logits kept"] == [2 * gathered]
        assert found["logits of the batch before"] == [gathered]
        assert found.get("logits of all ranks", []) == ([gathered] if ranks > 1 else [])
        assert sorted(found["losses kept"]) == [4 * 2 * ranks * 2, 4 * 2 * ranks * 3]
    assert evaluated(ranks=4, keeps=True, concatenates=True)["logits kept, copied"] == [3 * 2 * ACTIVATION * 4]
    assert "logits kept" not in evaluated(ranks=4)


def test_what_training_has_made_for_good_is_not_made_again() -> None:
    """Two batches are laid out: each makes what its own forward pass needs, and finds buckets and workspaces there."""
    found = evaluated("DDP bucket", "cuBLAS workspace (backward)", "all-gather output")
    assert "DDP bucket" not in found
    assert "cuBLAS workspace (backward)" not in found
    assert found["all-gather output"] == [1024, 1024]


def test_an_evaluation_leaves_what_it_found() -> None:
    asked = Evaluated(batch=2, batches=3, ranks=4, keeps=True, concatenates=True)
    joined = with_evaluation(stream(), stream(), asked)
    before = int(np.flatnonzero(joined.event_segment == joined.evaluation_segment)[0]) - 1
    live = joined.live(2)
    assert live[-1] <= live[before]
    assert live[before:].max() > live[before] + 3 * 2 * ACTIVATION * 4
