"""`environment.json`: where and with what a run was made (I/O)."""

import os
import platform
import socket
import sys
import time
from collections.abc import Mapping

import psutil

from gpu_plan.planner.cache_dir import installed

_PACKAGES = (
    "torch", "accelerate", "transformers", "deepspeed", "trl", "lightning", "peft", "torchao", "bitsandbytes", "numpy",
    "gpu-plan",
)  # fmt: skip
_PREFIXES = ("GPU_PLAN_", "ACCELERATE_", "FSDP_", "NCCL_", "GLOO_", "TORCH", "PYTORCH_", "CUDA_", "OMP_", "MKL_")
_NAMES = ("MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "HF_HOME", "HF_HUB_OFFLINE")


def describe_machine(added: Mapping[str, str]) -> dict[str, object]:
    """Versions, machine and the variables that matter to a job; never the whole environment, which holds secrets.

    `added`: what the launch adds to the environment.
    """
    return {
        "written": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "python": sys.version.split()[0],
        "executable": sys.executable,
        "packages": installed(_PACKAGES),
        "cpu_count": os.cpu_count(),
        "ram_bytes": psutil.virtual_memory().total,
        "variables": {key: value for key, value in sorted({**os.environ, **added}.items()) if _relevant(key)},
    }


def _relevant(name: str) -> bool:
    secret = any(word in name for word in ("TOKEN", "SECRET", "PASSWORD", "API_KEY"))
    return not secret and (name in _NAMES or name.startswith(_PREFIXES))
