"""All ranks of a launch: each runs every case of a list and writes what its allocator saw (I/O).

    python -m tests.support.ranks.worker FOLDER WORLD_SIZE

reads FOLDER/cases.json; ranks meet at FOLDER/meeting and write FOLDER/case-N-rank-R.json, and to FOLDER/errors-R what
they say. They are forked from one process that has imported what they need, before it has started any thread: torch and
transformers take longer to import than most cases to run.
"""

import gc
import json
import os
import signal
import sys
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from tests.support.cpu_reference import Reference
from tests.support.ranks.case import RankCase
from tests.support.ranks.loop import run_case
from tests.support.ranks.settled import settled_collectives
from tests.support.ranks.settled_groups import one_thread_each, settle_waits

TIMEOUT = timedelta(seconds=1500)


def dump(reference: Reference) -> str:
    """A reference as JSON, each operator path once."""
    paths = {path: number for number, path in enumerate(dict.fromkeys(c.path for c in reference.changes))}
    changes = [(change.nbytes, paths[change.path], change.pointer) for change in reference.changes]
    return json.dumps({"paths": list(paths), "changes": changes, "marks": reference.marks})


def main(folder: Path, rank: int, world_size: int) -> None:
    """Runs all cases, one after the other."""
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK=str(rank))
    one_thread_each()
    store = dist.FileStore(str(folder / "meeting"), world_size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=TIMEOUT)
    settle_waits()
    for number, values in enumerate(json.loads((folder / "cases.json").read_text())):
        try:
            with settled_collectives():
                text = dump(run_case(RankCase.from_dict(values)))
        except Exception:
            text = json.dumps({"error": traceback.format_exc()})
        (folder / f"case-{number}-rank-{rank}.json").write_text(text)
        gc.collect()
        gc.freeze()  # nor through what a case has imported
        dist.barrier()


def fork_rank(folder: Path, rank: int, world_size: int) -> int:
    """The pid of a new process that runs `main`; its exit code is 0 where that returned."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        with (folder / f"errors-{rank}").open("w") as errors:
            os.dup2(errors.fileno(), 2)
        main(folder, rank, world_size)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        # gloo's threads can abort an interpreter that is already done.
        os._exit(code)


def run_forked(folder: Path, world_size: int) -> int:
    """0 where all ranks ended well; the first that does not ends the others, which would wait for it."""
    gc.collect()
    gc.freeze()  # two collections a case need not go through what has been imported
    ranks = {fork_rank(folder, rank, world_size) for rank in range(world_size)}
    failed = False
    while ranks:
        pid, status = os.wait()
        ranks.discard(pid)
        if status and not failed:
            failed = True
            for other in ranks:
                os.kill(other, signal.SIGKILL)
    return int(failed)


if __name__ == "__main__":
    sys.exit(run_forked(Path(sys.argv[1]), int(sys.argv[2])))
