"""What else could be done: less asked of the job, adapters, more or fewer GPUs, a larger card; each one evaluated.

`changes` says what can be changed, `tried` evaluates what is left where nothing fits, or where it was asked for;
`beside` what can be told beside a plan that fits, from traces that are at hand; `useful` orders that by what it gains;
`without` evaluates the job without a degree that the plan has, where it is to be explained;
`headline` says the first line of a report whose plan keeps something in the node's RAM;
`lean_trainer` asks whose loop trains adapters on one GPU without that RAM, where nobody named one;
`generating` has what is told beside a generation, and is imported for one alone.
"""

from gpu_plan.planner.job.alternatives.beside import Came, Questions, beside, questions_beside
from gpu_plan.planner.job.alternatives.changes import Job
from gpu_plan.planner.job.alternatives.found import Beside
from gpu_plan.planner.job.alternatives.headline import first_line
from gpu_plan.planner.job.alternatives.lean_trainer import by_trainer
from gpu_plan.planner.job.alternatives.tried import Tried, alternatives, at_its_batch, nearest
from gpu_plan.planner.job.alternatives.without import with_what_degrees_buy

__all__ = [
    "Beside",
    "Came",
    "Job",
    "Questions",
    "Tried",
    "alternatives",
    "at_its_batch",
    "beside",
    "by_trainer",
    "first_line",
    "nearest",
    "questions_beside",
    "with_what_degrees_buy",
]
