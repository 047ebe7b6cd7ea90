"""The cluster that `--gpus` means, this machine's and the user's own included (I/O)."""

from planner.config import user_gpus
from planner.hardware.cluster import Cluster, parse_cluster


def find_cluster(text: str) -> Cluster:
    """`auto` detects this machine's GPUs; everything else is read by `parse_cluster`. InputError in one line."""
    if text.strip().lower() == "auto":
        from planner.hardware.detect import detect_cluster

        return detect_cluster()
    return parse_cluster(text, extra_gpus=user_gpus())
