"""On which machines a job fits, and what it costs there: the question before --gpus is known.

`find` asks every machine for its simplest plan, `searched` compares all plans of those that could then come first;
`orders` says which does, `figures` what is told of one, `missing` what it would take where none keeps to budget and
deadline.
"""

from gpu_plan.planner.job.machines.find import find_machines

__all__ = ["find_machines"]
