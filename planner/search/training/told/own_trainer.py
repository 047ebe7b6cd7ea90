"""The command of a stack whose own trainer spreads the model over ranks, which no launcher's options do."""

import shlex

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.memory.allocator.words import allocator_variable
from gpu_plan.planner.search.training.evaluate import StepJudgement
from gpu_plan.planner.strategy.base import MASTER
from gpu_plan.planner.workload.training import Workload


def runs_own_trainer(judgement: StepJudgement, workload: Workload) -> bool:
    """Whether ranks share the model as the stack's trainer spreads it."""
    return judgement.family.tensor_parallel > 1 and workload.stack.traits.cuts_sequence


def trainer_command(judgement: StepJudgement, workload: Workload, cluster: Cluster, model: str) -> str:
    """Shell command, quoted: torchrun and the words of the stack's trait."""
    family, batch = judgement.family, judgement.batch
    copies = cluster.world_size // family.tensor_parallel
    replicas = (family.replicas or cluster.nodes) if family.strategy.traits.replicates else 1
    compute = workload.precision.compute_dtype
    filled = {
        "model": shlex.quote(model),
        "seq_len": workload.seq_len,
        "micro_batch": batch.micro_batch,
        "global_batch": batch.micro_batch * batch.accumulation_steps * copies,
        "stored": MASTER if workload.precision.is_mixed else compute,
        "compute": compute,
        "checkpointing": family.checkpointing,
        "replicas": replicas,
        "shards": copies // replicas,
        "together": family.tensor_parallel,
    }
    words = ["torchrun", "--nproc_per_node", str(cluster.world_size // cluster.nodes)]
    if cluster.nodes > 1:
        words += ["--nnodes", str(cluster.nodes), "--node_rank", "$NODE_RANK"]
        words += ["--rdzv_backend", "c10d", "--rdzv_endpoint", "$HEAD_NODE:29500"]
    variable = allocator_variable(dict(family.own(workload).settings))
    start = [f"PYTORCH_ALLOC_CONF={variable}"] if variable else []
    return " ".join([*start, *words, *workload.stack.traits.trainer.split()]).format(**filled)
