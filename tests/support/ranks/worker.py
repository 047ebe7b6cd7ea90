"""One rank of a launch: runs every case of a list and writes what its allocator saw (I/O).

    python -m tests.support.ranks.worker FOLDER RANK WORLD_SIZE

reads FOLDER/cases.json, meets the other ranks at FOLDER/meeting and writes FOLDER/case-N-rank-R.json.
"""

import gc
import json
import os
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
    store = dist.FileStore(str(folder / "meeting"), world_size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=TIMEOUT)
    for number, values in enumerate(json.loads((folder / "cases.json").read_text())):
        try:
            with settled_collectives():
                text = dump(run_case(RankCase.from_dict(values)))
        except Exception:
            text = json.dumps({"error": traceback.format_exc()})
        (folder / f"case-{number}-rank-{rank}.json").write_text(text)
        gc.collect()
        gc.freeze()  # what a case has imported stays: the next collections, two a case, need not go through it
        dist.barrier()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    sys.stdout.flush()
    sys.stderr.flush()
    # gloo's threads can abort an interpreter that is already done.
    os._exit(0)
