"""Kubeflow Trainer: TrainJobs, by its SDK.

engine     its traits, and what the registry finds
exported   TrainJob and ConfigMap as plain values
client     kubeflow.trainer.TrainerClient: on Kubernetes, or as a process of this machine
"""

from gpu_plan.executor.engines.kinds.kubeflow.engine import ENGINE

__all__ = ["ENGINE"]
