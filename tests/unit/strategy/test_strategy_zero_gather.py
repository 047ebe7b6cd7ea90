"""The model of ZeRO-3's parameter coordinator against a recording of the real one."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from gpu_plan.planner.strategy.zero.stage3.gather import Coordinator
from gpu_plan.planner.strategy.zero.stage3.storage import Limits
from tests.support.gather_ledger import Ledger

RECORDING = json.loads((Path(__file__).parents[2] / "golden" / "deepspeed_zero3_gathers.json").read_text())


def build(limits: Limits, persistence: int, ledger: Ledger) -> tuple[Coordinator[int], dict[str, int]]:
    names = list(RECORDING["parameters"])
    modules = sorted({call[1] for calls in RECORDING["passes"] for call in calls})
    index = {name: number for number, name in enumerate(modules)}
    owned: dict[int, list[int]] = {}
    for number, name in enumerate(names):
        owned.setdefault(index[name.rpartition(".")[0]], []).append(number)
    numel = list(RECORDING["parameters"].values())
    small = frozenset(number for number, count in enumerate(numel) if count <= persistence)
    return Coordinator(numel=numel, owned=owned, persistent=small, limits=limits, storage=ledger), index


def replay(coordinator: Coordinator[int], index: dict[str, int], calls: list[list[object]]) -> list[int]:
    """Elements available or in flight after each recorded call."""
    found = []
    coordinator.begin(0)
    for what, module, phase, _ in calls:
        backward = phase == "backward"
        if what == "fetch":
            coordinator.fetch(0, index[str(module)], backward=backward)
        elif what == "release":
            coordinator.release(0, index[str(module)], backward=backward)
        elif what == "end":
            coordinator.finish_backward(0)
        else:
            coordinator.begin_step(0)
            coordinator.end_step(0)
        present = coordinator.present()
        found.append(sum(coordinator.numel[parameter] for parameter in present))
    return found


def limits(**changes: int) -> Limits:
    known = {key: RECORDING["config"][key] for key in ("prefetch", "max_live", "max_reuse", "world_size")}
    return Limits(**{**known, **changes})


def test_what_is_gathered_after_every_call_equals_the_real_coordinators() -> None:
    coordinator, index = build(limits(), RECORDING["config"]["persistence"], Ledger())
    for calls in RECORDING["passes"]:
        assert replay(coordinator, index, calls) == [call[3] for call in calls]


def test_only_persistent_parameters_stay_after_the_step() -> None:
    ledger = Ledger()
    coordinator, index = build(limits(), RECORDING["config"]["persistence"], ledger)
    for calls in RECORDING["passes"]:
        replay(coordinator, index, calls)
    assert sum(ledger.held.values()) == sum(n for n in RECORDING["parameters"].values() if n <= 100)


def test_one_rank_gathers_nothing() -> None:
    ledger = Ledger()
    coordinator, index = build(limits(world_size=1), 100, ledger)
    for calls in RECORDING["passes"]:
        replay(coordinator, index, calls)
    assert ledger.taken == 0


def both(**changes: int) -> list[Ledger]:
    """The recording replayed under its own bounds, and under changed ones."""
    ledgers = []
    for changed in ({}, changes):
        ledger = Ledger()
        coordinator, index = build(limits(**changed), 100, ledger)
        for calls in RECORDING["passes"]:
            replay(coordinator, index, calls)
        ledgers.append(ledger)
    return ledgers


@pytest.mark.parametrize("bound", ["prefetch", "max_live"])
def test_tighter_bounds_hold_less(bound: str) -> None:
    own, tight = both(**{bound: 1})
    assert tight.peak < own.peak


def test_a_longer_reach_gathers_less_often() -> None:
    own, far = both(max_reuse=10**9)
    assert far.taken < own.taken


# -- by hand -----------------------------------------------------------------------------------------------------


@dataclass
class Diary(Ledger):
    """Says what is taken, in order."""

    said: list[tuple[str, int]] = field(default_factory=list)

    def take(self, at: int, elements: int, label: str, padded: Sequence[int] = ()) -> int:
        self.said.append((label, elements))
        return super().take(at, elements, label, padded)


def small(owned: dict[int, list[int]], numel: list[int], **changes: int) -> tuple[Coordinator[int], Diary]:
    bounds = Limits(**{"prefetch": 0, "max_live": 10**9, "max_reuse": 0, "world_size": 4, **changes})
    diary = Diary()
    return Coordinator(numel=numel, owned=owned, persistent=frozenset(), limits=bounds, storage=diary), diary


def test_weights_of_one_module_are_gathered_together_padded_and_land_as_they_are() -> None:
    """partition_parameters.py: _all_gather_coalesced; a single one goes straight into its own tensor, padded."""
    together, diary = small({0: [0, 1]}, [5, 7])
    together.begin(0)
    together.fetch(0, 0, backward=False)
    assert diary.said == [("coalesced all-gather", 8 + 8), ("gathered weight", 5), ("gathered weight", 7)]
    assert sorted(diary.held.values()) == [5, 7]
    alone, diary = small({0: [0]}, [5])
    alone.begin(0)
    alone.fetch(0, 0, backward=False)
    assert diary.said == [("gathered weight", 8)]


def test_weights_of_two_types_are_gathered_by_a_call_each() -> None:
    """partition_parameters.py: _all_gather_coalesced; each gathers into a flat buffer, were it for one alone."""
    mixed, diary = small({0: [0, 1]}, [5, 7])
    mixed = replace(mixed, scale=(1, 2))
    mixed.begin(0)
    mixed.fetch(0, 0, backward=False)
    assert diary.said[:2] == [("coalesced all-gather", 8), ("coalesced all-gather", 2 * 8)]
    assert sorted(diary.held.values()) == [5, 2 * 7]


def test_what_a_module_reads_of_another_is_gathered_with_its_backward() -> None:
    """parameter_offload.py: register_external_parameter: unknown in the first forward, the reader's own behind it."""
    coordinator, _ = small({1: [0]}, [8])
    coordinator.read = {0: [0]}
    coordinator.begin(0)
    coordinator.fetch(0, 0, backward=False)
    assert coordinator.present() == frozenset()
    coordinator.fetch(0, 0, backward=True)
    assert coordinator.present() == {0}
    coordinator.release(0, 0, backward=True)
    assert coordinator.present() == frozenset()


def test_a_weight_stays_while_another_module_uses_it() -> None:
    coordinator, diary = small({0: [0], 1: [0]}, [8])
    coordinator.begin(0)
    coordinator.fetch(0, 0, backward=False)
    coordinator.fetch(0, 1, backward=False)
    coordinator.release(0, 1, backward=False)
    assert coordinator.present() == {0}
    coordinator.release(0, 0, backward=False)
    assert coordinator.present() == frozenset()
    assert diary.said == [("gathered weight", 8)]


def steps(coordinator: Coordinator[int], modules: list[int]) -> list[frozenset[int]]:
    """What is there after each module's fetch, in forward alone."""
    found = []
    coordinator.begin(0)
    for module in modules:
        coordinator.fetch(0, module, backward=False)
        found.append(coordinator.present())
        coordinator.release(0, module, backward=False)
    coordinator.begin_step(0)
    coordinator.end_step(0)
    return found


def test_fetching_ahead_goes_on_until_the_bound_is_reached() -> None:
    """__prefetch: `while self.__param_queue and numel_prefetching < max_params_to_prefetch`."""
    order = [0, 1, 2, 3]
    coordinator, _ = small({number: [number] for number in order}, [8] * 4, prefetch=9)
    assert steps(coordinator, order) == [{0}, {1}, {2}, {3}], "the first step records the order"
    assert steps(coordinator, order)[0] == {0, 1, 2}, "8 elements are below 9: one more"


def test_what_is_used_again_within_the_distance_stays() -> None:
    """__params_to_release: `params_traversed >= max_reuse_dist_in_numel` ends the look ahead."""
    order = [0, 1, 0]
    for reach, stays in ((8, False), (9, True)):
        coordinator, _ = small({0: [0], 1: [1]}, [8, 8], max_reuse=reach)
        steps(coordinator, order)
        assert (0 in steps(coordinator, order)[1]) is stays


def recomputing(*, frozen: bool) -> tuple[Coordinator[int], Ledger]:
    """Module 1's backward has just asked for a recomputation, in which module 0 has run."""
    ledger = Ledger()
    coordinator: Coordinator[int] = Coordinator(
        numel=[64, 32],
        owned={0: [0], 1: [1]},
        persistent=frozenset(),
        limits=limits(world_size=2),
        storage=ledger,
        frozen=frozenset({0, 1} if frozen else ()),
    )
    coordinator.begin(0)
    coordinator.fetch(0, 1, backward=True)
    coordinator.fetch(0, 0, backward=False)
    coordinator.release(0, 0, backward=False, recorded=True, recomputed=True)
    return coordinator, ledger


def test_what_is_frozen_stays_from_its_recomputation_until_the_asking_module_is_done() -> None:
    """partitioned_param_coordinator.py: update_recompute_parameters."""
    coordinator, ledger = recomputing(frozen=True)
    assert coordinator.present() == {0, 1}
    coordinator.release(0, 1, backward=True)
    assert (coordinator.present(), ledger.elements) == (frozenset(), 0)


def test_what_is_trained_goes_after_its_recomputation_and_leaves_a_view() -> None:
    """torch/utils/checkpoint.py: _recomputation_hook detaches what requires a gradient."""
    coordinator, ledger = recomputing(frozen=False)
    assert (coordinator.present(), ledger.elements) == ({1}, 96)
    coordinator.release(0, 1, backward=True)
    assert ledger.elements == 64
    coordinator.fetch(0, 0, backward=True)
    coordinator.release(0, 0, backward=True)
    assert ledger.elements == 0


def test_a_module_that_never_tells_lets_go_of_it_when_backward_ends() -> None:
    coordinator, ledger = recomputing(frozen=True)
    coordinator.finish_backward(0)
    assert ledger.elements == 0
