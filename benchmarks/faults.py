"""Faults injected for real into runs of two gloo ranks: how each ended, how many steps were lost, what was left.

python -m benchmarks.faults [--kills 20] writes benchmarks/results/faults.json and faults.md. The same runs are tests
in tests/execution/test_faults_*.py; this gathers their figures. "Lost" are optimizer steps that were done and done
again; a checkpoint is written every four steps.
"""

import argparse
import json
import os
import platform
import signal
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gpu_plan.executor.run_folder import RunFolder
from tests.support.fault_job import job
from tests.support.fault_runs import IMPATIENT, QUICK, Ended, alive, command_line, kill_a_rank, run, signal_launcher

RESULTS = Path(__file__).parent / "results"
SAVED = ("--steps", "40", "--pause", "0.05", "--save-every", "4")
LONG = ("--steps", "400", "--pause", "0.1")
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
        record = started.folder.read_run()
        left = alive(started.folder.run_id)
        killed = number == signal.SIGKILL
        wanted = record.status == ("running" if killed else "interrupted") and code == (-9 if killed else 130)
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


def main() -> None:
    """Runs everything, one after another, and writes the table after every run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="repetitions of SIGKILL of a random rank")
    parser.add_argument("--only-kills", action="store_true")
    parser.add_argument("--keep", action="store_true", help="add to the rows that are there already")
    args = parser.parse_args()
    kept = RESULTS / "faults.json"
    rows = [Row(**one) for one in json.loads(kept.read_text())["rows"]] if args.keep and kept.is_file() else []
    tasks: list[Callable[[], Row]] = [
        lambda seed=seed: supervised(  # type: ignore[misc]
            f"SIGKILL of a random rank at a random moment, {seed + 1}", ["signal", "success"], SAVED, 1,
            kill_a_rank(seed, 30),
        )
        for seed in range(args.kills)
    ]  # fmt: skip
    for task in tasks + ([] if args.only_kills else others()):
        rows.append(task())
        print(rows[-1], flush=True)
        write(rows)


def write(rows: Sequence[Row]) -> None:
    """The table so far."""
    RESULTS.mkdir(exist_ok=True)
    content = {"machine": f"{platform.machine()}, {os.cpu_count()} cores", "rows": [asdict(one) for one in rows]}
    (RESULTS / "faults.json").write_text(json.dumps(content, indent=1) + "\n")
    kills = [one for one in rows if one.fault.startswith("SIGKILL of a random")]
    lost = [one.steps_lost for one in kills if one.steps_lost is not None]
    lines = [
        "# Faults injected into real runs",
        "",
        f"`python -m benchmarks.faults` on {content['machine']}, two gloo ranks under DDP, torch's elastic agent.",
        "",
        f"{sum(one.survived for one in rows)} of {len(rows)} ended as stated; orphans: {sum(x.orphans for x in rows)}.",
        f"SIGKILL of a random rank: {sum(one.survived for one in kills)} of {len(kills)} survived, steps lost"
        f" {min(lost, default=0)} to {max(lost, default=0)} (a checkpoint every 4 steps).",
        "",
        "| fault | attempts ended by | status | exit code | orphans | steps lost | as stated |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in rows:
        lost_words = "-" if one.steps_lost is None else str(one.steps_lost)
        lines.append(
            f"| {one.fault} | {one.causes} | {one.status} | {one.exit_code} | {one.orphans} | {lost_words} |"
            f" {'yes' if one.survived else 'NO'} |"
        )
    (RESULTS / "faults.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
