"""The catalog's machines for one job, with each --prefer: whether they stand in the order that the word means.

python -m benchmarks.told.preferences asks `plan Qwen/Qwen3-4B --tokens 1B --prefer WORD` for each and writes
results/preferences.json and .md. *Falls* counts neighbours of the list that stand the wrong way round by the word's own
figure: dollars of the job, hours of it, tenths of a device in use, bytes of all devices (the default).
"""

import contextlib
import io
import itertools
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.places import RESULTS
from gpu_plan.cli import main as plan
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.strategy.known import all_traits

MODEL, TOKENS = "Qwen/Qwen3-4B", "1B"
_INFINITE = float("inf")


def _dollars(machine: dict[str, Any]) -> float:
    return _INFINITE if machine["job"]["usd"] is None else float(machine["job"]["usd"])


def _hours(machine: dict[str, Any]) -> float:
    return float(machine["job"]["hours"])


def _tenths(machine: dict[str, Any]) -> float:
    return float(math.ceil(10 * machine["device_used_bytes"] / machine["capacity_bytes"]))


def _parts(machine: dict[str, Any]) -> float:
    """Moving parts of what the plan is called."""
    name = machine["plan"].partition(",")[0]
    of_title = {traits.title: traits.moving_parts for traits in all_traits()}
    known = [parts for title, parts in of_title.items() if name.startswith(title)]
    return float(max(known, default=0) + (100 if "offload" in name else 0))


def _bytes(machine: dict[str, Any]) -> float:
    return float(parse_cluster(machine["spec"]).capacity_bytes * machine["gpus"])


MEANS: dict[str, tuple[str, Callable[[dict[str, Any]], float]]] = {
    "balance": ("bytes of all devices", _bytes),
    "cost": ("dollars of the job", _dollars),
    "speed": ("hours of the job", _hours),
    "memory": ("tenths of a device in use", _tenths),
    "simple": ("moving parts", _parts),
}
"""What each word puts in order, less first."""


def asked(prefer: str) -> list[dict[str, Any]]:
    """The machines as `plan` lists them."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        plan([MODEL, "--tokens", TOKENS, "--prefer", prefer, "--quiet", "--json"])
    return list(json.loads(out.getvalue())["machines"])


def table(rows: Sequence[dict[str, Any]]) -> str:
    """As Markdown."""
    lines = [
        "# The catalog's machines by each wish",
        "",
        f"Made by `python -m benchmarks.told.preferences`: `plan {MODEL} --tokens {TOKENS} --prefer WORD` over the"
        " whole catalog. *Falls*: neighbours that stand the wrong way round by what the word means.",
        "",
        "| --prefer | by | machines | falls | first five |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        first = "; ".join(f"{one['spec']}: {one['plan']}, {_figures(one)}" for one in row["machines"][:5])
        cells = (row["prefer"], row["by"], str(len(row["machines"])), str(row["falls"]), first)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _figures(machine: dict[str, Any]) -> str:
    dollars = machine["job"]["usd"]
    return f"{machine['job']['hours']:.1f} h" + ("" if dollars is None else f", ${dollars:,.0f}")


def main() -> None:
    rows = []
    for prefer, (by, measure) in MEANS.items():
        machines = asked(prefer)
        values = [measure(machine) for machine in machines]
        falls = sum(one > other * (1 + 1e-9) for one, other in itertools.pairwise(values))
        rows.append({"prefer": prefer, "by": by, "falls": falls, "machines": machines})
        print(prefer, len(machines), falls, flush=True)
        (RESULTS / "preferences.json").write_text(json.dumps(rows, indent=1) + "\n")
        (RESULTS / "preferences.md").write_text(table(rows))


if __name__ == "__main__":
    main()
