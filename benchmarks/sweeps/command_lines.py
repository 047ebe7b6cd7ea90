"""Runs a list of command lines and keeps what each gave: exit code, output, errors and files.

    python -m benchmarks.sweeps.command_lines record FOLDER [--tree CHECKOUT] [--jobs 2]
    python -m benchmarks.sweeps.command_lines compare OLD NEW [--renamed RENAMED]

`record` runs every line of data/command_lines/lines.txt in a folder of its own, with a home and a cache of their own,
by the code of a checkout (this one, unless `--tree` names another), and writes one JSON file a line. `compare` says
which lines differ and how. What a machine decides, and not the code, is replaced before anything is kept: folders, run
ids, times. Lines of `--renamed`, `old -> new` each, are differences that are wanted: replaced on the old side.
"""

import argparse
import difflib
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.places import DATA, ROOT

SET = DATA / "command_lines"
LIMIT_SECONDS = 900
"""Ends a line that hangs; none is expected to come near it."""


def lines() -> tuple[list[str], list[str]]:
    """Lines that prepare the folder, and those that are compared."""
    read = [line.strip() for line in (SET / "lines.txt").read_text(encoding="utf-8").splitlines()]
    kept = [line for line in read if line and not line.startswith("#")]
    return [line[2:] for line in kept if line.startswith("$ ")], [line for line in kept if not line.startswith("$ ")]


def command(tree: Path) -> tuple[list[str], dict[str, str]]:
    """What starts `plan` by the code of a checkout, and the environment that this takes."""
    if (tree / "src" / "gpu_plan").is_dir():
        return [sys.executable, "-P", "-m", "gpu_plan"], {"PYTHONPATH": str(tree / "src")}
    return [sys.executable, "-P", "-m", "planner"], {"PYTHONPATH": str(tree)}


def record(target: Path, tree: Path, jobs: int, only: str = "") -> None:
    """Runs all lines that hold `only`; `target/N.json` holds line N."""
    target.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.gettempdir()) / "plan-command-lines"  # the same each time: digests are of paths, too
    shutil.rmtree(work, ignore_errors=True)
    scene = work / "scene"
    shutil.copytree(SET / "scene", scene)
    (work / "home").mkdir()
    first, compared = lines()
    for line in first:
        done = _run(line, scene, work, tree)
        if done.returncode not in (0, 1):
            sys.exit(f"plan {line}\n{done.stderr}")
    before = _files(scene)

    def one(numbered: tuple[int, str]) -> None:
        number, line = numbered
        folder = work / f"line-{number:03d}"
        shutil.copytree(scene, folder)
        began = time.monotonic()
        done = _run(line, folder, work, tree)
        made = {name: text for name, text in _files(folder).items() if before.get(name) != text}
        kept = {
            "line": line,
            "code": done.returncode,
            "stdout": _plain(done.stdout, folder, tree),
            "stderr": _plain(done.stderr, folder, tree),
            "files": {_plain(name, folder, tree): _plain(text, folder, tree) for name, text in made.items()},
        }
        (target / f"{number:03d}.json").write_text(json.dumps(kept, indent=1), encoding="utf-8")
        print(f"{number:03d} {done.returncode} {time.monotonic() - began:.1f} s  plan {line}", flush=True)
        shutil.rmtree(folder)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, [numbered for numbered in enumerate(compared) if only in numbered[1]]))


def _run(line: str, folder: Path, work: Path, tree: Path) -> subprocess.CompletedProcess[str]:
    words, variables = command(tree)
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(work / "home"),
        "GPU_PLAN_CACHE": str(work / "cache"),
        "HF_HUB_OFFLINE": "1",
        "COLUMNS": "100",
        "LC_ALL": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        # The folder stands for a project of the user's, whose factory is imported from it.
        **variables,
    }
    env["PYTHONPATH"] = os.pathsep.join((env["PYTHONPATH"], str(folder)))
    return subprocess.run(
        [*words, *shlex.split(line)],
        cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT_SECONDS, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def _files(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            content = path.read_bytes()
            try:
                text = content.decode()
            except UnicodeDecodeError:
                text = f"{len(content)} bytes, sha256 {hashlib.sha256(content).hexdigest()}"
            found[str(path.relative_to(folder))] = text
    return found


_DATE = r"\b20\d\d-?\d\d-?\d\d"
_MACHINE = (
    (re.compile(_DATE + r"[T-]\d\d:?\d\d:?\d\d(?:[.]\d+)?(?:Z|[+]\d\d:\d\d)?(?:-[0-9a-z]{4,8})?\b"), "WHEN"),
    (re.compile(r"[\d.]+ GiB (of [\d.]+ GiB available|free in)"), r"SOME GiB \1"),
)


def _plain(text: str, folder: Path, tree: Path) -> str:
    """Without what another machine, folder or moment would have changed."""
    for path, word in ((folder, "FOLDER"), (Path(sys.prefix), "ENV"), (tree / "src", "TREE"), (tree, "TREE")):
        text = text.replace(str(path), word)
    for pattern, word in _MACHINE:
        text = pattern.sub(word, text)
    return text


def differences(old: Path, new: Path, renamed: Sequence[tuple[str, str]]) -> Iterator[tuple[str, list[str]]]:
    """Lines that differ, each with the differing rows; `renamed` are wanted differences."""
    _, compared = lines()
    for number, line in enumerate(compared):
        found = [_kept(folder / f"{number:03d}.json") for folder in (old, new)]
        for before, after in renamed:
            found[0] = [row.replace(before, after) for row in found[0]]
        if found[0] != found[1]:
            yield line, [row for row in difflib.unified_diff(*found, "old", "new", lineterm="", n=0)][2:]


def _kept(path: Path) -> list[str]:
    kept = json.loads(path.read_text(encoding="utf-8"))
    rows = [f"exit code {kept['code']}", "-- stdout", *kept["stdout"].splitlines(), "-- stderr"]
    rows += kept["stderr"].splitlines()
    for name, text in sorted(kept["files"].items()):
        rows += [f"-- {name}", *text.splitlines()]
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record")
    recording.add_argument("folder", type=Path)
    recording.add_argument("--tree", type=Path, default=ROOT)
    recording.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    recording.add_argument("--only", default="", help="lines that hold this text")
    comparing = verbs.add_parser("compare")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    comparing.add_argument("--renamed", type=Path)
    comparing.add_argument("--rows", type=int, default=12, help="differing rows shown of each line")
    args = parser.parse_args()
    if args.verb == "record":
        record(args.folder.resolve(), args.tree.resolve(), args.jobs, args.only)
        return 0
    listed = args.renamed.read_text(encoding="utf-8").splitlines() if args.renamed else []
    renamed = [(row.split(" -> ")[0], row.split(" -> ")[1]) for row in listed if " -> " in row]
    found = list(differences(args.old, args.new, renamed))
    for line, rows in found:
        print(f"plan {line}", *(f"    {row[:220]}" for row in rows[: args.rows]), sep="\n")
        if len(rows) > args.rows:
            print(f"    ... {len(rows) - args.rows} more")
    total = len(lines()[1])
    print(f"{total - len(found)} of {total} equal")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
