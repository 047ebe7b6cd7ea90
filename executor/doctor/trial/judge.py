"""From what the ranks of a trial told to findings and figures. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpu_plan.executor.doctor.finding import SEVERITIES, Finding, Severity
from gpu_plan.executor.doctor.trial.outcome import RankResult, Speed
from gpu_plan.executor.records.run import RunRecord
from gpu_plan.planner.plan.saved import SavedPlan
from gpu_plan.planner.strategy.known import known_traits
from gpu_plan.planner.workload.precisions import stored_precision

_SLOW = 0.25
"""A link below this share of the speed that the plan reckons with is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSpeed:
    """A collective as the slowest rank saw it."""

    collective: str
    bytes: int
    seconds: float
    bytes_per_second: float
    """Of the tensor."""
    link_bytes_per_second: float
    """What each link carried (nccl-tests' busbw): of an all-reduce 2 (N-1)/N of it, of the others (N-1)/N."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A trial launch, judged."""

    strategy: str
    ranks: int
    """That reported."""
    world_size: int
    """That was planned."""
    backend: str | None
    wrapped: str | None
    passed: tuple[str, ...]
    """Names of what held on every rank."""
    untried: tuple[str, ...]
    """What this backend or strategy cannot do."""
    speeds: tuple[TrialSpeed, ...]
    findings: tuple[Finding, ...]


def judge(
    saved: SavedPlan,
    record: RunRecord,
    results: Sequence[RankResult],
    seen: str | None,
    last_words: str,
) -> Trial:
    """`seen`: the strategy that the ranks' own records tell; `last_words`: of a job that failed."""
    strategy = saved.plan.strategy
    findings = [*_ended(record, results, strategy.world_size, last_words), *_joined(results, strategy.world_size)]
    ran = known_traits(seen)
    # One device has nothing to share out: a wrapper may well be left away.
    left_away = ran is not None and ran.one_device and strategy.world_size == 1
    if seen is not None and seen != strategy.name and not left_away:
        what = f"the model ran under {seen}; the plan says {strategy.name}"
        why = "memory and speed of the plan hold for another strategy"
        findings.append(_finding("strategy", "error", what, why, "report this with the output of `plan export`"))
    findings += _precision(results, strategy.precision)
    findings += _devices(results)
    findings += _failed(results)
    speeds = _slowest(results)
    findings += _slow(saved, results, speeds)
    names = _names(results)
    return Trial(
        strategy=strategy.name,
        ranks=len(results),
        world_size=strategy.world_size,
        backend=results[0].backend if results else None,
        wrapped=results[0].wrapped if results else None,
        passed=tuple(name for name in names if all(_verdict(result, name) is True for result in results)),
        untried=tuple(name for name in names if any(_verdict(result, name) is None for result in results)),
        speeds=speeds,
        findings=tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))),
    )


def _finding(id: str, severity: Severity, what: str, why: str, fix: str) -> Finding:
    return Finding(id=f"launch-{id}", severity=severity, what=what, why=why, fix=fix, place="trial launch")


def _ended(record: RunRecord, results: Sequence[RankResult], world: int, last_words: str) -> list[Finding]:
    if record.succeeded:
        return []
    if results and len(results) == world:
        what = f"the job ended badly after its work: {record.message}"
        why = "a launch that does its work may still be reported as failed"
        return [_finding("end", "warning", what, why, "look at the log of the failing rank")]
    what = f"the trial job failed: {record.message}"
    fix = f"the last words were: {last_words}" if last_words else "run it with --execute to see its log"
    return [_finding("failed", "error", what, "the planned launch does not work on this machine", fix)]


def _joined(results: Sequence[RankResult], world: int) -> list[Finding]:
    """One process where several were planned, or several that never met: both end with exit code 0."""
    sizes = {result.world_size for result in results}
    if world == 1 or not results or sizes == {world}:
        return []
    if sizes == {1} and len(results) == 1:
        what = f"one process ran instead of {world}"
    elif sizes == {1}:
        what = f"{len(results)} processes ran independently: each took itself for the only one"
    else:
        what = f"the ranks saw {', '.join(map(str, sorted(sizes)))} processes instead of {world}"
    why = "the job would run to its end and compute something else than planned"
    return [_finding("world", "error", what, why, "compare the launch files (`plan export`) with what started here")]


def _precision(results: Sequence[RankResult], planned: str) -> list[Finding]:
    wanted = stored_precision(planned).launcher
    found = {result.mixed_precision for result in results}
    if not found or found == {wanted}:
        return []
    what = f"mixed precision was {', '.join(sorted(found))}; the plan says {planned}"
    why = "memory and speed of the plan hold for another precision"
    return [_finding("precision", "error", what, why, "unset ACCELERATE_MIXED_PRECISION, and look at the launch files")]


def _devices(results: Sequence[RankResult]) -> list[Finding]:
    # Jobs that never met are reported as that.
    identities = [result.device_id for result in results if result.world_size > 1]
    if len(set(identities)) == len(identities):
        return []
    what = "several ranks share one GPU"
    return [_finding("devices", "error", what, "out of memory, or a failure of NCCL", "unset CUDA_VISIBLE_DEVICES")]


def _names(results: Sequence[RankResult]) -> list[str]:
    return list(dict.fromkeys(tested.name for result in results for tested in result.tests))


def _verdict(result: RankResult, name: str) -> bool | None:
    return next((tested.passed for tested in result.tests if tested.name == name), None)


def _failed(results: Sequence[RankResult]) -> list[Finding]:
    findings = []
    for name in _names(results):
        wrong = [
            (result.rank, tested.detail)
            for result in results
            for tested in result.tests
            if tested.name == name and tested.passed is False
        ]
        if wrong:
            ranks = ", ".join(str(rank) for rank, _ in wrong)
            detail = f": {wrong[0][1]}" if wrong[0][1] else ""
            what = f"{name}: wrong on rank {ranks}{detail}"
            why = "training would go on and compute something wrong"
            fix = "run `accelerate test`; look for another torch, NCCL or driver, and for NCCL_* variables"
            findings.append(_finding("wrong", "error", what, why, fix))
    return findings


def _slowest(results: Sequence[RankResult]) -> tuple[TrialSpeed, ...]:
    world = max((result.world_size for result in results), default=1)
    worst: dict[tuple[str, int], Speed] = {}
    for result in results:
        for speed in result.speeds:
            key = (speed.collective, speed.bytes)
            if key not in worst or speed.seconds > worst[key].seconds:
                worst[key] = speed
    return tuple(
        TrialSpeed(
            collective=speed.collective,
            bytes=speed.bytes,
            seconds=speed.seconds,
            bytes_per_second=speed.bytes_per_second,
            link_bytes_per_second=speed.bytes_per_second * _share(speed.collective, world),
        )
        for speed in worst.values()
    )


def _share(collective: str, world: int) -> float:
    if collective == "broadcast":
        return 1.0
    return (2 if collective == "all_reduce" else 1) * (world - 1) / world


def _slow(saved: SavedPlan, results: Sequence[RankResult], speeds: Sequence[TrialSpeed]) -> list[Finding]:
    """On GPUs, whether the link carries what the plan's step time rests on."""
    link = saved.cluster.get("intra_node" if saved.cluster.get("nodes") == 1 else "inter_node")
    planned = link.get("bytes_per_s") if isinstance(link, dict) else None
    largest = max(
        (speed for speed in speeds if speed.collective == "all_reduce"), key=lambda one: one.bytes, default=None
    )
    if (
        not results
        or results[0].world_size < 2
        or results[0].backend != "nccl"
        or not isinstance(planned, int | float)
        or largest is None
    ):
        return []
    if largest.link_bytes_per_second >= _SLOW * planned:
        return []
    found, wanted = largest.link_bytes_per_second / 1e9, planned / 1e9
    what = f"an all-reduce of {largest.bytes >> 20} MiB moves {found:.1f} GB/s per link, the plan has {wanted:.0f}"
    why = "steps take longer than planned"
    return [_finding("slow", "warning", what, why, "look at `nvidia-smi topo -m` and at NCCL_DEBUG=INFO")]
