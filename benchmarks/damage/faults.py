"""Faults injected for real into runs of two gloo ranks: how each ended, how many steps were lost, what was left.

python -m benchmarks.damage.faults [--jobs 2] [--part more] writes benchmarks/results/faults.json and faults.md. Samples
of the runs are tests in tests/execution/test_faults_*.py; this gathers the figures of all. "Lost" are
optimizer steps that were done and done again; a checkpoint is written every four steps.
"""

import argparse
import json
import os
import platform
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.damage.fault_cases import ANY, CASES, Case
from benchmarks.places import RESULTS
from gpu_plan.executor.run_folder import RunFolder
from tests.support.fault_job import ENVIRONMENT, LEAN, SCRIPT, job
from tests.support.fault_runs import (
    IMPATIENT,
    QUICK,
    Ended,
    alive,
    command_line,
    kill_a_rank,
    marked,
    run,
    signal_launcher,
    steps_done,
    wait_until,
)
from tests.support.lean_fault_script import CHILDREN, MARK

SAVED = ("--steps", "40", "--pause", "0.05", "--save-every", "4")
LONG = ("--steps", "400", "--pause", "0.1")
LEAN_LONG = ("--steps", "3000", "--pause", "0.05")
RIGHT = {None: "-", True: "yes", False: "NO"}
Inject = Callable[[RunFolder], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run with one fault."""

    fault: str
    causes: str
    status: str
    exit_code: int | None
    orphans: int
    steps_lost: int | None
    """None where no attempt followed."""
    survived: bool
    """Whether the job ended in the state that is stated for this fault."""
    cause_right: bool | None = None
    """Whether the cause, the rank and the words are those of the fault; None where only the state was judged."""
    said: str = ""
    """The first attempt's explanation."""
    earlier: bool = False
    """Whether the row is of a run before the last change of what is tested."""


def supervised(
    fault: str, stated: Sequence[str], arguments: Sequence[str], restarts: int = 1, inject: Inject | None = None
) -> Row:
    """One run under the supervisor of this process."""
    with tempfile.TemporaryDirectory(prefix="plan-faults-") as folder:
        limits = IMPATIENT if "hang" in stated else QUICK
        ended = run(job(Path(folder), *arguments, max_restarts=restarts), limits, inject=inject)
        return row(fault, stated, ended)


def row(fault: str, stated: Sequence[str], ended: Ended) -> Row:
    """What a finished run says."""
    causes = [str(cause) for cause in ended.causes]
    lost = ended.steps_lost() if len(causes) > 1 else None
    return Row(
        fault=fault,
        causes=" → ".join(causes),
        status=ended.record.status,
        exit_code=ended.record.exit_code,
        orphans=len(ended.orphans),
        steps_lost=lost,
        survived=causes in (list(stated), ["success"]) and not ended.orphans,
    )


def of_plan(number: signal.Signals) -> Row:
    """A signal to `plan --execute` itself."""
    with tempfile.TemporaryDirectory(prefix="plan-faults-") as folder:
        started = command_line(Path(folder), *LONG)
        code = started.end(number)
        wait_until(lambda: started.folder.read_run().status != "running", 60.0)
        record = started.folder.read_run()
        left = alive(started.folder.run_id)
        killed = number == signal.SIGKILL
        wanted = record.status == ("lost" if killed else "interrupted") and code == (-9 if killed else 128 + number)
        return Row(
            fault=f"{number.name} of plan",
            causes=", ".join(str(attempt.cause) for attempt in record.attempts if attempt.cause) or "none written",
            status=record.status,
            exit_code=code,
            orphans=len(left),
            steps_lost=None,
            survived=wanted and not left,
        )


def others() -> list[Callable[[], Row]]:
    """Every fault but the random kills."""
    again = ("--steps", "8", "--save-every", "2")
    crash = ["signal", "success"]
    return [
        lambda: supervised("an exception in a rank", ["exception", "success"], ("--fault", "exception", *again)),
        lambda: supervised("exception, its peer deaf to SIGTERM", ["exception"], ("--fault", "deaf-peer"), 0, None),
        lambda: supervised("the same exception every time", ["exception"] * 2,
                           ("--fault", "exception", "--attempts", "9"), 9, None),
        lambda: supervised("sys.exit(3) in one rank", ["exit"], ("--fault", "exit"), 0, None),
        lambda: supervised("SIGSEGV in one rank", crash, ("--fault", "segv", *again)),
        lambda: supervised("SIGTERM of one rank", crash, ("--fault", "term", *again)),
        lambda: supervised("a rank hangs", ["hang", "success"], ("--fault", "hang", *again)),
        lambda: supervised("a rank spins", ["hang", "success"], ("--fault", "spin", *again)),
        lambda: supervised("a checkpoint is torn", crash, ("--fault", "torn", "--at", "4", *again)),
        lambda: supervised("a checkpoint is cut", crash, ("--fault", "corrupt", "--at", "6", *again)),
        lambda: supervised("a child left behind", ["success"], ("--fault", "child"), 0, None),
        lambda: supervised("SIGKILL of the launcher", ["launcher", "success"], (*SAVED,), 1,
                           signal_launcher(signal.SIGKILL)),
        lambda: supervised("SIGTERM of the launcher", ["interrupted"], LONG, 1, signal_launcher(signal.SIGTERM)),
        lambda: supervised("SIGINT of the launcher", ["interrupted"], LONG, 1, signal_launcher(signal.SIGINT)),
        lambda: of_plan(signal.SIGINT),
        lambda: of_plan(signal.SIGTERM),
        lambda: of_plan(signal.SIGKILL),
    ]  # fmt: skip


def of_case(case: Case) -> Row:
    """One of the faults of `fault_cases`."""
    with tempfile.TemporaryDirectory(prefix="plan-faults-") as folder:
        asked = job(
            Path(folder), *case.arguments, script=LEAN if case.lean else SCRIPT, processes=case.processes,
            strategy=case.strategy, max_restarts=case.restarts,
        )  # fmt: skip
        ended = run(asked, case.limits, inject=case.inject)
        first, found = ended.record.attempts[0], row(case.fault, case.causes, ended)
    right = tuple(ended.causes) == case.causes and case.says in first.explanation
    right = right and (case.culprit == ANY or first.culprit == case.culprit) and ended.record.exit_code == case.code
    return replace(
        found, cause_right=right, survived=tuple(ended.causes) == case.causes and not ended.orphans,
        said=first.explanation,
    )  # fmt: skip


def of_children() -> list[Row]:
    """What a script may leave behind, of every kind, in one run; each is looked for by its own mark."""
    kinds = list(CHILDREN)
    mark = str(time.time_ns())
    with tempfile.TemporaryDirectory(prefix="plan-faults-") as folder:
        arguments = ("--fault", ",".join((*kinds, "zombies")))
        asked = replace(job(Path(folder), *arguments, script=LEAN), environment={**ENVIRONMENT, MARK: mark})
        ended = run(asked)
    rows = []
    for number, kind in enumerate((*kinds, "zombies")):
        living = marked(f"{mark}{kinds.index('child-daemon')}") if number == len(kinds) else []
        left = marked(f"{mark}{number}") if kind in kinds else sorted({*ended.orphans} - {*living})
        declared = kind == "child-daemon"
        good = ended.causes == ["success"] and len(left) == int(declared)
        rows.append(
            Row(
                fault=f"left behind: {kind}" + (", declared: lives on" if declared else ""), causes="success",
                status=ended.record.status, exit_code=ended.record.exit_code, steps_lost=None, survived=good,
                orphans=0 if declared else len(left),
            )
        )  # fmt: skip
    for number in range(len(kinds)):
        for pid in marked(f"{mark}{number}"):
            os.kill(pid, signal.SIGKILL)
    return rows


def of_signals(fault: str, numbers: Sequence[signal.Signals], code: int, *arguments: str, early: bool = False) -> Row:
    """Signals to `plan --execute` itself; `early`: as soon as its launcher runs."""
    mark = str(time.time_ns())
    with tempfile.TemporaryDirectory(prefix="plan-faults-") as folder:
        ready = (lambda run: alive(run.run_id)) if early else (lambda run: steps_done(run) >= 4)
        started = command_line(Path(folder), *arguments, *LEAN_LONG, script=LEAN, ready=ready, environment={MARK: mark})
        found = started.end(*numbers)
        wait_until(lambda: started.folder.read_run().ended is not None, 60.0)
        record = started.folder.read_run()
        left = [*alive(started.folder.run_id), *(pid for n in range(len(CHILDREN)) for pid in marked(f"{mark}{n}"))]
    wanted = "lost" if signal.SIGKILL in numbers else "interrupted"
    good = found == code and record.status == wanted
    return Row(
        fault=fault, causes=", ".join(str(one.cause) for one in record.attempts if one.cause) or "none",
        said=record.message,
        status=record.status, exit_code=found, orphans=len(left), steps_lost=None, survived=good and not left,
        cause_right=good,
    )  # fmt: skip


def signals() -> list[Callable[[], Row]]:
    """Signals to `plan` in variants."""
    term, interrupt, kill = signal.SIGTERM, signal.SIGINT, signal.SIGKILL
    deaf = ("--fault", "deaf", "--rank", "all", "--at", "2")
    escaped = ("--fault", "child-escaped,child-deaf", "--at", "2")
    return [
        lambda: of_signals("SIGTERM of plan before the first step", [term], 143, early=True),
        lambda: of_signals("SIGINT of plan before the first step", [interrupt], 130, early=True),
        lambda: of_signals("SIGKILL of plan before the first step", [kill], -9, early=True),
        lambda: of_signals("SIGHUP of plan", [signal.SIGHUP], 129),
        lambda: of_signals("SIGTERM of plan, both ranks deaf", [term], 143, *deaf),
        lambda: of_signals("SIGTERM of plan twice", [term, term], 143),
        lambda: of_signals("SIGINT, then SIGTERM of plan", [interrupt, term], 130),
        lambda: of_signals("SIGTERM of plan, escaped children", [term], 143, *escaped),
        lambda: of_signals("SIGKILL of plan, escaped children", [kill], -9, *escaped),
    ]


def tasks_of(part: str, kills: int) -> list[Callable[[], Row | list[Row]]]:
    """What is to be run."""
    killed: list[Callable[[], Row | list[Row]]] = [
        lambda seed=seed: supervised(  # type: ignore[misc]
            f"SIGKILL of a random rank at a random moment, {seed + 1}", ["signal", "success"], SAVED, 1,
            kill_a_rank(seed, 30),
        )
        for seed in range(kills)
    ]  # fmt: skip
    more: list[Callable[[], Row | list[Row]]] = [of_children, *signals()]
    more += [lambda case=case: of_case(case) for case in CASES]  # type: ignore[misc]
    parts = {"kills": killed, "others": list(others()), "more": more}
    return parts[part] if part != "all" else [*killed, *parts["others"], *more]


def main() -> None:
    """Runs everything and writes the table after every run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="repetitions of SIGKILL of a random rank")
    parser.add_argument("--part", choices=("all", "kills", "others", "more"), default="all")
    parser.add_argument("--match", default="", help="of `more`, the tasks whose name holds this; `children`: those")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--keep", action="store_true", help="add to the rows that are there already")
    args = parser.parse_args()
    # A shell's background job ignores SIGINT, and nohup's SIGHUP: so would every `plan` that they are sent to.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, lambda number, frame: None)
    kept = RESULTS / "faults.json"
    rows = [Row(**one) for one in json.loads(kept.read_text())["rows"]] if args.keep and kept.is_file() else []
    tasks = tasks_of(args.part, args.kills)
    if args.match == "children":
        tasks = [of_children]
    elif args.match:
        tasks = [lambda case=case: of_case(case) for case in CASES if args.match in case.fault]  # type: ignore[misc]
    with ThreadPoolExecutor(args.jobs) as pool:
        for done in as_completed([pool.submit(task) for task in tasks]):
            try:
                found = done.result()
            except Exception as error:  # one case that breaks does not take the others with it
                print(f"not run: {type(error).__name__}: {error}", flush=True)
                continue
            for one in found if isinstance(found, list) else [found]:
                rows = [*(row for row in rows if row.fault != one.fault), one]
                print(one, flush=True)
            write(rows)


def write(rows: Sequence[Row]) -> None:
    """The table so far."""
    RESULTS.mkdir(exist_ok=True)
    content = {"machine": f"{platform.machine()}, {os.cpu_count()} cores", "rows": [asdict(one) for one in rows]}
    (RESULTS / "faults.json").write_text(json.dumps(content, indent=1) + "\n")
    kills = [one for one in rows if one.fault.startswith("SIGKILL of a random")]
    judged = [one for one in rows if one.cause_right is not None]
    lost = [one.steps_lost for one in kills if one.steps_lost is not None]
    old = sum(one.earlier for one in rows)
    lines = [
        "# Faults injected into real runs",
        "",
        f"`python -m benchmarks.damage.faults` on {content['machine']}: gloo ranks, two under DDP unless the fault says"
        " otherwise, torch's elastic agent.",
        "",
        f"{len(rows)} faults: {sum(one.survived for one in rows)} ended as stated; orphans:"
        f" {sum(x.orphans for x in rows)}; cause, rank and exit code right in"
        f" {sum(bool(x.cause_right) for x in judged)} of the {len(judged)} in which they are judged.",
        f"SIGKILL of a random rank: {sum(one.survived for one in kills)} of {len(kills)} survived, steps lost"
        f" {min(lost, default=0)} to {max(lost, default=0)} (a checkpoint every 4 steps).",
        *(
            ["", f"{old} rows are of an earlier run, before processes lived below a keeper; they are marked."]
            if old
            else []
        ),
        "",
        "| fault | attempts ended by | status | exit code | orphans | steps lost | as stated | cause right |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in rows:
        fault = one.fault + (" (earlier run)" if one.earlier else "")
        lost_words = "-" if one.steps_lost is None else str(one.steps_lost)
        lines.append(
            f"| {fault} | {one.causes} | {one.status} | {one.exit_code} | {one.orphans} | {lost_words} |"
            f" {'yes' if one.survived else 'NO'} | {RIGHT[one.cause_right]} |"
        )
    (RESULTS / "faults.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
