"""What engines that place jobs say of their nodes: `--gpus slurm:PARTITION`, `ray:`, `k8s:`, and `auto` in a job (I/O).

    nodes      what any engine tells, and the cluster that it means
    slurm      sinfo's GRES, features and memory; an allocation's environment
    ray        `ray list nodes`
    kubernetes `kubectl get nodes`: allocatable and labels; a TrainJob's environment
    skypilot   a task's environment
    registry   which engine a specification asks, and in which one this process is

One engine is one file; `options.cluster` asks the registry.
"""
