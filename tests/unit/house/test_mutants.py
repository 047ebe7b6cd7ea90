"""The lists of mutants: each can be planted where the sources stand today, and its tests are there."""

from collections import Counter
from pathlib import Path

from benchmarks.mutants.mutant import ROOT, mutants
from benchmarks.mutants.patch import module_of

LISTED = list(mutants())


def test_there_are_many_and_each_has_a_name_of_its_own() -> None:
    assert len(LISTED) >= 150
    assert max(Counter(mutant.name for mutant in LISTED).values()) == 1
    assert {mutant.topic for mutant in LISTED} >= {
        "strategies", "streams", "allocator", "folding", "search", "speed", "device_map", "codecs", "resume",
        "classification",
    }  # fmt: skip


def test_every_fault_can_be_planted() -> None:
    """After a change of a source, the fault is written anew for it: `make mutants` would end at the first otherwise."""
    for mutant in LISTED:
        changed = mutant.changed((ROOT / mutant.path).read_text())
        compile(changed, mutant.path, "exec")
        assert all((ROOT / test).is_file() for test in mutant.tests), mutant.name


def test_files_are_imported_by_these_names() -> None:
    assert module_of("planner/memory/lines.py") == "gpu_plan.planner.memory.lines"
    assert module_of("executor/checkpoints/__init__.py") == "gpu_plan.executor.checkpoints"
    assert Path(ROOT / "planner").is_dir()
