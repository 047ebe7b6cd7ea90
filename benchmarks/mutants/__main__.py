"""python -m benchmarks.mutants [WORDS] [--jobs N] [--again] [--before]

Tries every mutant whose name or file holds one of WORDS, all where none is given. What was tried and is unchanged (the
fault, the file, its tests) is not tried again. Exit code 1 where one lives that is not argued equivalent.
"""

import argparse
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.mutants import child, report, session
from benchmarks.mutants.copy import copied, planted
from benchmarks.mutants.mutant import ROOT, Mutant, mutants

_MOST_SECONDS = 300
"""Of processor time, for tests without any fault; with one they get thrice what they took, and a few seconds."""


def main() -> int:
    words = _words()
    listed = list(mutants())
    for mutant in listed:
        mutant.changed((ROOT / mutant.path).read_text())
    if words.worker:
        return _work(listed)
    found = report.known()
    chosen = [m for m in listed if not words.words or any(word in f"{m.name} {m.path}" for word in words.words)]
    due = [m for m in chosen if words.again or found["mutants"].get(m.name, {}).get("digest") != m.digest()]
    began = time.monotonic()
    _tried(due, words.jobs, found, listed)
    if words.before:
        found["before"] = [mutant.name for mutant in report.alive_of(found, listed)]
        found["tried_before"] = len(found["mutants"])
    whole = time.monotonic() - began if len(due) == len(listed) else None
    print(report.written(found, listed, whole))
    alive = report.alive_of(found, listed)
    for mutant in alive:
        print(f"alive: {mutant.name} ({mutant.path})")
    return 1 if alive else 0


def _words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--again", action="store_true", help="try what is unchanged too")
    parser.add_argument("--before", action="store_true", help="record who lives as alive before")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _tried(due: list[Mutant], jobs: int, found: dict[str, object], listed: list[Mutant]) -> None:
    """Each due mutant by one of `jobs` workers; what is found is kept every time, so that a run can be ended."""
    left: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in due:
        left.put(mutant)
    lock, done = threading.Lock(), 0
    digests = {mutant.name: mutant.digest() for mutant in due}  # of what the workers copy, whatever is edited meanwhile

    tests = sorted({test for mutant in due for test in mutant.tests})

    def drive() -> None:
        nonlocal done
        with subprocess.Popen(
            [sys.executable, "-m", "benchmarks.mutants", "--worker"],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as worker:
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdin.write(json.dumps(tests) + "\n")
            while True:
                try:
                    mutant = left.get_nowait()
                except queue.Empty:
                    worker.stdin.close()
                    return
                worker.stdin.write(mutant.name + "\n")
                worker.stdin.flush()
                answer = worker.stdout.readline()
                if not answer:
                    print(f"a worker ended at {mutant.name}", file=sys.stderr)
                    return
                with lock:
                    done += 1
                    result = {"digest": digests[mutant.name], "killed_by": json.loads(answer)}
                    found["mutants"][mutant.name] = result  # type: ignore[index]
                    report.written(found, listed, None)
                    shown = result["killed_by"] or ("equivalent" if mutant.equivalent else "ALIVE")
                    print(f"{done}/{len(due)} {mutant.name}: {shown}", flush=True)

    threads = [threading.Thread(target=drive) for _ in range(min(jobs, len(due)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _work(listed: list[Mutant]) -> int:
    """A worker: the files of tests and then names on stdin, what killed each on stdout."""
    by_name = {mutant.name: mutant for mutant in listed}
    # pytest takes the three streams for itself.
    questions, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    tests: list[str] = json.loads(questions.readline())
    clean: dict[tuple[str, ...], int] = {}
    told: list[child.Outcome] = []

    def ask() -> Iterator[tuple[Mutant | None, tuple[str, ...], int]]:
        for line in questions:
            mutant = by_name[line.rstrip("\n")]
            if mutant.tests not in clean:
                yield None, mutant.tests, _MOST_SECONDS
                if told[-1].failed:
                    raise SystemExit(f"{told[-1].failed} fails without any fault planted")
                clean[mutant.tests] = told[-1].seconds
            yield mutant, mutant.tests, 3 * clean[mutant.tests] + 5
            failed = told[-1].failed
            print(json.dumps(_in_a_copy(mutant) if failed == session.NOT_HERE else failed), file=answers, flush=True)

    session.serve(tests, ask, told.append)
    return 0


def _in_a_copy(mutant: Mutant) -> str:
    """What cannot be exchanged in loaded modules (a type, a field's default) is imported anew, from changed files."""
    with tempfile.TemporaryDirectory(prefix="plan-mutants-") as folder:
        copy = copied(Path(folder))
        with planted(copy, mutant):
            return child.outcome(copy, mutant.tests, _MOST_SECONDS).failed


if __name__ == "__main__":
    raise SystemExit(main())
