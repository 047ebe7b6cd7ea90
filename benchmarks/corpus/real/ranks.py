"""Two ranks of one script, each watched by torch's profiler up to its first optimizer step.

The calling process has imported the libraries: its forks run a script in the time that the script takes.
"""

import json
import os
import runpy
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RANKS = 2
_SECONDS = 600.0


def run(script: Path, arguments: Sequence[str], folder: Path, roots: Sequence[Path]) -> list[dict[str, Any]] | str:
    """What each rank did, or the last line of one that failed; `folder` takes what they leave."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results = [folder / f"real-{rank}.json" for rank in range(RANKS)]
    started = [_fork(rank, port, script, arguments, result, roots) for rank, result in enumerate(results)]
    ended = time.monotonic() + _SECONDS
    for process in started:
        _wait(process, ended)
    missing = [rank for rank, result in enumerate(results) if not result.exists()]
    if missing:
        said = (folder / f"real-{missing[0]}.log").read_text(errors="replace").strip().splitlines()
        return f"rank {missing[0]}: {said[-1] if said else 'nothing said'}"
    return [json.loads(result.read_text()) for result in results]


def _wait(process: int, ended: float) -> None:
    while os.waitpid(process, os.WNOHANG)[0] == 0:
        if time.monotonic() > ended:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            return
        time.sleep(0.2)


def _fork(rank: int, port: int, script: Path, arguments: Sequence[str], result: Path, roots: Sequence[Path]) -> int:
    process = os.fork()
    if process:
        return process
    log = os.open(result.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(RANKS),
        LOCAL_WORLD_SIZE=str(RANKS),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    try:
        _become(script, arguments, result, roots)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _become(script: Path, arguments: Sequence[str], result: Path, roots: Sequence[Path]) -> None:
    """Runs the script as its user would, with the capture's stand-ins for data that are not at hand."""
    from gpu_plan.planner.capture.standin.data_sets import stand_in_for_data_sets, texts_beside
    from gpu_plan.planner.capture.standin.metrics import stand_in_for_metrics
    from gpu_plan.planner.capture.standin.tokenizers import stand_in_for_tokenizers
    from gpu_plan.planner.capture.standin.told import Told
    from tests.support.script_reference import RealRun

    told = Told(asked=True)
    stand_in_for_data_sets(told, lambda: texts_beside(script), arguments)
    stand_in_for_tokenizers(told)
    stand_in_for_metrics(told)
    os.chdir(script.parent if "site-packages" not in script.parts else result.parent)
    sys.path[:0] = [str(script.parent), *map(str, roots)]
    sys.argv = [str(script), *arguments]
    RealRun(result).install()
    runpy.run_path(str(script), run_name="__main__")
