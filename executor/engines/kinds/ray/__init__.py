"""Ray: jobs by its own job client, nodes by Ray Train's workers.

engine     its traits, and what the registry finds
exported   `plan export --to ray`: a driver that needs none of this package
client     ray.job_submission: submit, state, stop
group      the driver of a run: holds the nodes, starts the supervisor on the first, begins again where one is lost
nodes      the supervisor's launches on each node
outside    a look at the nodes from outside of any job
"""

from gpu_plan.executor.engines.kinds.ray.engine import ENGINE

__all__ = ["ENGINE"]
