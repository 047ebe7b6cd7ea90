"""The cluster that `--gpus` means, this machine's and the user's own included (I/O)."""

from gpu_plan.planner.hardware.cluster import Cluster, parse_cluster
from gpu_plan.planner.options.config import user_gpus


def find_cluster(text: str) -> Cluster:
    """`auto` detects this machine's GPUs; everything else is read by `parse_cluster`. InputError in one line."""
    if text.strip().lower() == "auto":
        from gpu_plan.planner.hardware.detect import detect_cluster

        return detect_cluster()
    return parse_cluster(text, extra_gpus=user_gpus())
