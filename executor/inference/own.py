"""For prompt scripts of one's own: the model as the plan of this process puts it, and progress that survives a kill."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from gpu_plan.executor import names
from gpu_plan.executor.inference.job import InferenceJob
from gpu_plan.executor.inference.loading.checkpoint import open_checkpoint
from gpu_plan.executor.inference.loading.load import Loaded, load
from gpu_plan.executor.inference.loading.room import offload_folder
from gpu_plan.executor.inference.options import Request
from gpu_plan.executor.inference.prompting.ranks import ranks_of, start
from gpu_plan.executor.inference.session import on_rank
from gpu_plan.executor.inference.start import folder_of, offload_parent, planned


@contextmanager
def planned_model(request: Request) -> Iterator[tuple[Loaded, InferenceJob]]:
    """The model of this rank, loaded where the plan puts it; what went to disk is cleared at the end.

    Inside `plan ... --execute SCRIPT` the plan is the run's; else `request.plan_file` names one. Raises PlanErrors.
    """
    job = planned(request)
    ranks = ranks_of(job)
    start(ranks)
    mine = on_rank(job, ranks)
    with offload_folder(offload_parent(request), ranks.rank, mine.places) as folder:
        yield load(mine, open_checkpoint(folder_of(job)), folder), mine


def attempt() -> int:
    """Which launch of the run this is, from 1."""
    return int(os.environ.get(names.ATTEMPT, "1"))
