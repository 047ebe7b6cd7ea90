"""Which machine this is, as far as its speed depends on it; no torch (I/O)."""

import os
import re
from pathlib import Path

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.speed.calibration.record import Machine

_TIMEOUT_SECONDS = 20
_MODEL = re.compile(r"^(?:model name|Hardware|CPU implementer)\s*:\s*(.+)$", re.MULTILINE)


def this_machine(cluster: Cluster) -> Machine:
    """This machine, whose devices are those of `cluster`. Unknown facts are empty."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cluster.gpu.is_cpu:
        return Machine(device=processor_name(), gpu="cpu", devices=1, processors=processors)
    driver, watts = _driver()
    return Machine(
        device=cluster.gpu.name,
        gpu=cluster.gpu.id,
        devices=cluster.gpus_per_node,
        driver=driver,
        power_limit_watts=watts,
        processors=processors,
    )


def processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name as the kernel prints it, or its architecture."""
    try:
        found = _MODEL.search(cpuinfo.read_text(errors="replace"))
    except OSError:
        found = None
    return found[1].strip() if found else os.uname().machine


def _driver() -> tuple[str, float | None]:
    """Driver and power limit of the first device, as nvidia-smi prints them."""
    import subprocess  # seldom asked for

    command = ("nvidia-smi", "--query-gpu=driver_version,power.limit", "--format=csv,noheader,nounits")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "", None
    return parse_driver(done.stdout) if done.returncode == 0 else ("", None)


def parse_driver(text: str) -> tuple[str, float | None]:
    """Of `nvidia-smi --query-gpu=driver_version,power.limit` as bare CSV: the first line."""
    driver, _, watts = (text.splitlines() or [""])[0].partition(",")
    watts = watts.strip()
    return driver.strip(), float(watts) if re.fullmatch(r"[0-9]{1,5}(\.[0-9]+)?", watts) else None
