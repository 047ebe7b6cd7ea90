"""`python -m ... PYTHON ADDRESS WANTED WORDS...`: runs words once on each node of a group that Ray gives for it (I/O).

Waits, writes what they wrote to stderr, and ends with their code. Interrupted, it stops the job.
"""

import json
import shlex
import sys
import tempfile
import time
import uuid
from pathlib import Path

from gpu_plan.executor.engines.kinds.ray import client
from gpu_plan.executor.engines.kinds.ray.engine import driver_of
from gpu_plan.executor.engines.kinds.ray.group import Wanted
from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.own_python import ROOT

_POLL = 0.5


def main(python: str, address: str | None, given: str, words: list[str]) -> int:
    """The exit code of the job."""
    with tempfile.TemporaryDirectory(prefix=".plan-ray-", dir=Path.cwd()) as folder:
        values = {**json.loads(given), "words": words}
        wanted = Wanted(**{**values, "folder": values["folder"] or folder})
        file = Path(folder) / "job.py"
        file.write_text(driver_of(wanted, ROOT), encoding="utf-8")
        found = client.connect(address)
        name = f"plan-look-{uuid.uuid4().hex[:12]}"
        job = client.submit(found, address, f"exec {shlex.join([python, '-P', str(file)])}", {}, name)
        try:
            while (state := client.state(found, address, job)).where != "ended":
                time.sleep(_POLL)
        except BaseException:
            client.stop(found, address, job)
            raise
        code = state.exit_code if state.exit_code is not None else 1
        if code:
            sys.stderr.write(client.logs(found, address, job))
        return code


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], sys.argv[2] or None, sys.argv[3], sys.argv[4:]))
    except PlanError as problem:
        print(f"plan: {problem}", file=sys.stderr)
        sys.exit(int(problem.exit_code))
