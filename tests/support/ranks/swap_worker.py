"""One rank of a launch that trains with swap files (I/O).

    python -m tests.support.ranks.swap_worker FOLDER RANK WORLD_SIZE

reads FOLDER/cases.json, meets the other ranks at FOLDER/meeting and writes FOLDER/case-N-rank-R.json.
"""

import gc
import json
import os
import shutil
import sys
import traceback
from pathlib import Path

import torch
import torch.distributed as dist

from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.trace.inputs.batch import training_batch
from tests.accuracy.architectures import ARCHITECTURES
from tests.support.cpu_reference import real_inputs
from tests.support.ranks.case import RankCase
from tests.support.ranks.swap_loop import swapped_run
from tests.support.ranks.worker import TIMEOUT


def main(folder: Path, rank: int, world_size: int) -> None:
    """Runs all cases, one after the other, each with files of its own."""
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK=str(rank))
    store = dist.FileStore(str(folder / "meeting"), world_size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=TIMEOUT)
    for number, values in enumerate(json.loads((folder / "cases.json").read_text())):
        case = RankCase.from_dict(values)
        files = folder / f"nvme-{number}"
        try:
            config = ARCHITECTURES[case.architecture].config(**case.changes)
            meta = build_model(config, attention=case.attention.value, dtype=getattr(torch, case.stored))
            inputs = real_inputs(training_batch(meta, batch=case.micro_batch, seq_len=case.seq_len))
            text = json.dumps(swapped_run(case, meta, inputs, files))
        except Exception:
            text = json.dumps({"error": traceback.format_exc()})
        (folder / f"case-{number}-rank-{rank}.json").write_text(text)
        gc.collect()
        dist.barrier()
        if rank == 0:
            shutil.rmtree(files, ignore_errors=True)
        dist.barrier()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
