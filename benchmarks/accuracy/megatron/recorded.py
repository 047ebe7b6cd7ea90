"""When a regression value was recorded, and in which container.

`python -m benchmarks.accuracy.megatron.recorded FOLDER CLONE` writes what this module reads.
FOLDER holds megatron_golden.json, CLONE is a clone of Megatron-LM with its history. A value belongs to the first commit
of its file that has it; docker/.ngc_version.dev of that commit names the container. `recorded.json` is what was found.
"""

import argparse
import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

FOUND = Path(__file__).with_name("recorded.json")
_BIG_ON_BLACKWELL = (26, 3)
"""Containers of this and later months have torch since February 2026 (pytorch/pytorch#175344), which gives cuBLAS
32 MiB on Blackwell; before, 8 MiB and 128 KiB, as on any GPU but Hopper (aten/src/ATen/cuda/CublasHandlePool.cpp)."""
WORKSPACE_BEFORE = (2 * 4096 + 8 * 16) * 1024


def main() -> None:
    """Writes `recorded.json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where megatron_golden.json lies")
    parser.add_argument("clone", type=Path, help="a clone of Megatron-LM")
    given = parser.parse_args()
    rows = json.loads((given.folder / "megatron_golden.json").read_text(encoding="utf-8"))
    found = {row["id"]: one for row in rows if (one := _first(given.clone, row)) is not None}
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(one)}" for key, one in sorted(found.items()))
    FOUND.write_text("{\n" + lines + "\n}\n", encoding="utf-8")


def workspace_before(row_id: str, capability: tuple[int, int]) -> int | None:
    """Bytes of a cuBLAS workspace on Blackwell where the container's torch is older than what is planned with."""
    container = _recorded().get(row_id, {}).get("container", "")
    version = container.rpartition(":")[2].partition("-")[0].split(".")
    if capability[0] != 10 or len(version) != 2:
        return None
    return WORKSPACE_BEFORE if (int(version[0]), int(version[1])) < _BIG_ON_BLACKWELL else None


@cache
def _recorded() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(FOUND.read_text(encoding="utf-8"))
    return found


def _first(clone: Path, row: Any) -> dict[str, str] | None:
    """The first commit whose file has the row's last value, its day and its container."""
    if not row["preferred_of_case_and_gpu"] or "dev" not in row["software"]:
        return None
    path = row["source"].partition(":")[2].partition("@")[0]
    first = ""
    for commit in _git(clone, "log", "--format=%h %cs", "--", path).splitlines():
        values = _values(_git(clone, "show", f"{commit.split()[0]}:{path}"))
        if not values or values[-1] != row["measured"]["mem_max_allocated_bytes"]["last"]:
            break
        first = commit
    if not first:
        return None
    commit, day = first.split()
    return {"commit": commit, "day": day, "container": _git(clone, "show", f"{commit}:docker/.ngc_version.dev").strip()}


def _values(text: str) -> list[Any]:
    try:
        return list(json.loads(text)["mem-max-allocated-bytes"]["values"].values())
    except (ValueError, KeyError, TypeError):
        return []


def _git(clone: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(clone), *words], capture_output=True, text=True, check=False).stdout


if __name__ == "__main__":
    main()
