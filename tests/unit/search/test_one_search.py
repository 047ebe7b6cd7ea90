"""One search for every task: where training and generating had drifted apart, both now do the same."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from types import SimpleNamespace

import pytest

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import Cluster, parse_cluster
from gpu_plan.planner.hardware.disk import NVME_BYTES_PER_S
from gpu_plan.planner.memory.profile import PeakDetails, known
from gpu_plan.planner.memory.stream.moments import Phase
from gpu_plan.planner.search.device_use import Simulated
from gpu_plan.planner.search.generation.relaxed import relaxed as smaller_generations
from gpu_plan.planner.search.judgement import Judgement
from gpu_plan.planner.search.nearest_change import grown, nearest_change
from gpu_plan.planner.search.reasons import failure, told_apart
from gpu_plan.planner.search.search import search
from gpu_plan.planner.search.task import Explored, Rejected
from gpu_plan.planner.search.training.candidates import batches, families
from gpu_plan.planner.search.training.relaxed import relaxed as smaller_trainings
from gpu_plan.planner.speed.collectives import call_seconds
from gpu_plan.planner.speed.model import Collective
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.trace.events import CATEGORIES, Category
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.units import GIB
from gpu_plan.planner.workload.generation import InferWorkload
from gpu_plan.planner.workload.training import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged(Judgement):
    """A candidate of a task that does nothing."""

    name: str = "all of it"
    rate: float = 1.0

    @property
    def title(self) -> str:
        return self.name

    @property
    def samples_per_second(self) -> float:
        return self.rate


def judged(peak: int, capacity: int = 16 * GIB, **more: object) -> Judged:
    at_peak = {**dict.fromkeys(CATEGORIES, 0), Category.TEMPORARY: peak - GIB, Category.COMMUNICATION: GIB}
    details = PeakDetails(phase_of_peak=Phase.BACKWARD, at_peak=at_peak, at_rest_bytes=0, phase_peaks={})
    profile = known(peak, details)
    return Judged(profile=profile, terms=(), host_bytes=0, capacity_bytes=capacity, **more)


class Sharded:
    """A task whose only candidate takes its share of 100 GiB; or all of it on every device, where it is replicated."""

    def __init__(self, cluster: Cluster, *, replicated: bool = False) -> None:
        self.evaluator = SimpleNamespace(
            cluster=cluster,
            host_shortage=lambda judgement: None,
            disk_shortage=lambda judgement: None,
            host_limit=None,
            node_ram_bytes=0,
            simulate=lambda one: one,
            evaluated=1,
        )
        self.replicated = replicated
        self.asked: list[Cluster] = []

    def finer(self, ranking: object, plans: object, rejected: object = (), others: object = ()) -> Iterator[object]:
        return iter(())

    def hopeless(self, family: object, ranking: object, plans: object) -> None:
        return None

    def smaller(self) -> Iterator[tuple[str, "Sharded"]]:
        return iter(())

    def on(self, cluster: Cluster) -> "Sharded":
        larger = Sharded(cluster, replicated=self.replicated)
        larger.asked = self.asked
        return larger

    def footprints(self) -> frozenset[object]:
        return frozenset({1 if self.replicated else self.evaluator.cluster.world_size})

    def fitting(self) -> Judged | None:
        self.asked.append(self.evaluator.cluster)
        share = 100 * GIB // (1 if self.replicated else self.evaluator.cluster.world_size)
        found = judged(share, capacity=self.evaluator.cluster.capacity_bytes)
        return found if found.verdict == "fits" else None

    def words(self, judgement: Judged) -> str:
        return judgement.title


def test_more_gpus_of_a_platform_are_no_longer_that_platform() -> None:
    """It said: NO on 1 GPU; colab-t4 would fit."""
    platform = parse_cluster("colab-t4")
    specs = [cluster.spec for cluster in grown(platform)]
    assert platform.spec not in specs
    assert specs[:2] == ["2xT4", "4xT4"]
    assert all(cluster.host_ram_bytes is None for cluster in grown(platform)), "another machine's RAM is not known"
    assert nearest_change(Sharded(platform)) == "8xT4 would fit: all of it"


@pytest.mark.parametrize("spec", ["1xA100", "2x8xA100"])
def test_both_tasks_grow_alike_up_to_the_same_number_of_nodes(spec: str) -> None:
    sizes = [cluster.world_size for cluster in grown(parse_cluster(spec))]
    assert sizes == sorted(set(sizes))
    assert all(after == 2 * before for before, after in pairwise(sizes))
    assert [cluster.nodes for cluster in grown(parse_cluster(spec))][-1] == 1024
    assert list(grown(parse_cluster("4xcpu"))) == []


def test_clusters_on_which_nothing_takes_less_are_not_asked_again() -> None:
    """Replicas of a generation never meet: the second machine is judged, the thousandth is not."""
    task = Sharded(parse_cluster("1xT4"), replicated=True)
    assert nearest_change(task) is None
    assert len(task.asked) == 1


def test_nvme_is_as_fast_for_weights_as_for_swap_files() -> None:
    assert NVME_BYTES_PER_S == 3e9
    swapped = Collective(kind="disk_to_host", bytes=3 * 10**9, phase="step", per="step", overlap=False)
    assert call_seconds(swapped, parse_cluster("1xA100")).expected == pytest.approx(1.0)


def test_reasons_are_in_the_same_words_and_count_the_tensors() -> None:
    evaluator = Sharded(parse_cluster("1xT4")).evaluator
    died = Simulated(reserved_bytes=30 * GIB, reserved_under_pressure=None, retries=3)
    too_large = failure(evaluator, judged(20 * GIB, simulated=died))
    assert too_large == "all of it needs 20.0 GiB, has 16.0: temporaries 19.0, communication buffers 1.0"
    assert told_apart(16 * GIB + GIB // 40, 16 * GIB) == ("16.02", "16.00"), "who needs more is seen"
    fragmented = failure(evaluator, judged(15 * GIB, simulated=died))
    assert fragmented is not None
    assert fragmented.startswith(
        "all of it runs out of memory in 16.0 GiB by fragmentation: 15.0 allocated at the peak and 0.0 "
    )
    assert failure(evaluator, judged(15 * GIB)) is None


def test_a_search_ranks_and_tells_what_was_passed_over_once() -> None:
    class Several(Sharded):
        def families(self) -> Iterator[str]:
            return iter(["slow", "fast", "whole", "torn", "torn"])

        def name(self, family: str) -> str:
            return "in parts" if family == "torn" else family

        def refusal(self, family: str) -> str | None:
            return None

        def words_of(self, family: str) -> str:
            return family

        def by_states(self, family: str) -> None:
            return None

        def explore(self, family: str, *, exhaustive: bool) -> Explored[Judged]:
            if family == "torn":
                raise CannotSplitError("it has one layer")
            if family == "whole":
                return Explored(rejected=Rejected(judgement=judged(99 * GIB), reason="too large"))
            return Explored(best=judged(GIB, name=family, rate=2.0 if family == "fast" else 1.0))

    found = search(Several(parse_cluster("1xT4")))
    assert [plan.title for plan in found.plans] == ["fast", "slow"]
    assert found.best is found.plans[0]
    assert [rejected.reason for rejected in found.rejected] == ["too large"]
    assert found.inapplicable == ["in parts: it has one layer"] * 2
    tight = judged(GIB, rate=9.0, simulated=Simulated(reserved_bytes=17 * GIB, reserved_under_pressure=GIB, retries=1))
    ordered = found.ranking.ordered([tight, *found.plans])
    assert ordered[-1] is tight, "what is not sure to fit stands behind what fits, however fast"


def test_both_tasks_suggest_alike_what_they_have_alike() -> None:
    settings = (("memory.reserve", str(2 * GIB)),)
    training = Workload(micro_batch=8, seq_len=2048, strategy="fsdp", offload="none", settings=settings)
    trained = [words for words, _ in smaller_trainings(training, can_checkpoint=True, is_cpu=False)]
    generation = InferWorkload(batch=8, context=4096, strategy="single", offload="none", settings=settings)
    generated = [words for words, _ in smaller_generations(generation, encoder_decoder=False)]
    for words in (trained, generated):
        assert words[0] == "without --set memory.reserve it"
        assert "another --strategy" in words
        assert "--offload all" in words
    assert [word for word in generated if word.startswith("--batch")] == [f"--batch {size}" for size in (4, 2, 1)]
    assert [word for word in generated if word.startswith("--context")] == ["--context 2048", "--context 1024"]
    assert replace(training, settings=()).reserve_bytes == 0


# -- what a training search tries -----------------------------------------------------------------------------------


def test_swap_files_are_tried_when_they_are_asked_for_alone() -> None:
    def tried(offload: str | None) -> set[Offload]:
        job = Workload(seq_len=64, strategy="zero3", offload=offload)
        return {family.offload for family in families(job, parse_cluster("8xH100"), can_checkpoint=True)}

    assert tried(None) == {Offload.NONE, Offload.OPTIMIZER, Offload.ALL}
    assert tried("nvme") == {Offload.NVME}


def cuts(data_parallel: int, **given: int) -> list[tuple[int, int]]:
    """Micro batch and accumulation steps of every batch that is tried."""
    return [(cut.micro_batch, cut.accumulation_steps) for cut in batches(Workload(**given), data_parallel)]  # type: ignore[arg-type]


def test_every_cut_of_a_global_batch_gives_just_that_batch() -> None:
    assert cuts(2, global_batch=12) == [(1, 6), (2, 3), (3, 2), (6, 1)]
    assert cuts(2, global_batch=12, grad_accum=3) == [(2, 3)]
    with pytest.raises(UsageError, match="10 does not divide over 4 data-parallel ranks: use 8 or 12"):
        cuts(4, global_batch=10)
    with pytest.raises(UsageError, match="is 6 samples a rank: --micro-batch 4 does not divide that"):
        cuts(2, global_batch=12, micro_batch=4)


def test_micro_batches_are_tried_up_to_256_samples() -> None:
    assert [size for size, _ in cuts(1)] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert cuts(1, global_batch=768)[-2:] == [(192, 4), (256, 3)]
