"""Ways out of a captured script, tried from inside under each kind of wall, and looked for from outside.

python -m benchmarks.damage.ways_out writes benchmarks/results/ways_out.json and ways_out.md. The script is
tests/support/ways/inside; tests/capture/test_ways_out.py runs the same. Where the kernel is to refuse namespaces it
does so for real: by a filter of system calls around the whole run, as in a container.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks.places import RESULTS
from tests.support import denied
from tests.support.small_disk import small_disk
from tests.support.ways.outside import attempt

WALLS = {"namespaces": "", "landlock": denied.NAMESPACES, "neither": denied.EVERYTHING}
COLUMNS = {"namespaces": "namespaces", "landlock": "Landlock and seccomp"}


def measure(*only: str, unwalled: bool = False) -> dict[str, object]:
    """All ways under whatever walls this process's kernel offers; the disk is a mount of its own where that goes."""
    try:
        with small_disk(8, within="/var/tmp") as disk:
            return asdict(attempt(disk, *only, unwalled=unwalled))
    except BaseException as problem:  # pytest's own way to say that nothing can be mounted
        if type(problem).__name__ != "Skipped":
            raise
        with tempfile.TemporaryDirectory(prefix="plan-disk-") as folder:
            return asdict(attempt(Path(folder), *only, unwalled=unwalled))


def under(walls: str) -> dict[str, object]:
    """The same in a process of its own, whose kernel refuses what `walls` says."""
    words = [sys.executable, "-P", "-m", "benchmarks.damage.ways_out", "--here"]
    words = denied.command(WALLS[walls], *words) if WALLS[walls] else words
    root = Path(__file__).parents[2]
    done = subprocess.run(
        words, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{walls}: {done.stderr}")
    found: dict[str, object] = json.loads(done.stdout)
    return found


def table(found: dict[str, dict[str, object]]) -> str:
    """As Markdown."""
    rows: dict[str, dict[str, dict[str, str]]] = {}
    for walls in COLUMNS:
        for tried in found[walls]["tried"]:  # type: ignore[attr-defined]
            rows.setdefault(tried["way"], {})[walls] = tried
    out = {walls: sum(row[walls]["verdict"] == "OUT" for row in rows.values() if walls in row) for walls in COLUMNS}
    lines = [
        "# Ways out of a captured script",
        "",
        f"Made by `python -m benchmarks.damage.ways_out` on Linux {platform.release()}, {platform.machine()}, as user"
        f" {os.getuid()}. Each way is tried by the script itself; files, processes, sockets and memory outside are"
        " looked at before and after. *Went nowhere*: the script thinks it did it, and nothing outside is changed.",
        "",
        f"{len(rows)} ways. "
        + "; ".join(f"{COLUMNS[walls]}: {out[walls]} out" for walls in COLUMNS)
        + ". Where neither is offered the script is not started: "
        + f"“{found['neither']['outcome']['message']}”.",  # type: ignore[index]
        "",
        "| way | " + " | ".join(COLUMNS.values()) + " |",
        "|---|" + "---|" * len(COLUMNS),
    ]
    for way, row in rows.items():
        cells = (_cell(row.get(walls)) for walls in COLUMNS)
        lines.append(f"| {way} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(tried: dict[str, str] | None) -> str:
    if tried is None:
        return "not tried"
    why = tried["inside"].partition(": ")[2].replace("|", "/")[:70]
    return f"{tried['verdict']}: {why}" if tried["verdict"] == "stopped" else tried["verdict"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--here", action="store_true", help="print what happens under this process's own kernel")
    parser.add_argument("--unwalled", action="store_true", help="with --here: run it where there are no walls as well")
    parser.add_argument("only", metavar="WAY", nargs="*", help="with --here: not all ways, but these")
    args = parser.parse_args()
    if args.here:
        print(json.dumps(measure(*args.only, unwalled=args.unwalled)))
        return
    found = {walls: under(walls) for walls in WALLS}
    (RESULTS / "ways_out.json").write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "ways_out.md").write_text(table(found))


if __name__ == "__main__":
    main()
