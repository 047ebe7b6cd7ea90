"""RAM at load: the figures against the private memory of a process that really loads a checkpoint."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEAR = 0.02
"""Of the model: what the process takes for anything else meanwhile (threads' arenas, the list of weights)."""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells private memory apart")
def test_what_is_cast_is_private_and_what_is_not_stays_a_mapped_file(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.loaded_memory", str(tmp_path)]
    # glibc hands large blocks back at once where this is set; else what was freed before would be taken again.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=1500, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    whole = 4 * found["parameters"]
    assert whole > 60e6
    shares = {case: size / whole for case, size in found["taken"].items()}
    assert shares["stored"] == pytest.approx(0, abs=NEAR)
    for case in ("cast", "upcast", "second rank, efficient loading"):
        assert shares[case] == pytest.approx(1, abs=NEAR), (case, shares)
