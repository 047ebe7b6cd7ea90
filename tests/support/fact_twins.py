"""Writes the twins of tables that are read on the way to a first answer: `make readme`, after a table was changed."""

from pathlib import Path

from gpu_plan.planner.plain.facts import twin_of, write_twin

_PLANNER = Path(__file__).resolve().parents[2] / "planner"
TABLES = tuple(
    _PLANNER / name
    for name in ("hardware/gpus.toml", "hardware/machines.toml", "speed/collectives.toml", "speed/efficiency.toml")
)

if __name__ == "__main__":
    for table in TABLES:
        twin_of(table).write_bytes(write_twin(table))
