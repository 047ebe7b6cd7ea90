"""Looks at this machine: files of the kernel, the vendor's tool, the network, the installed packages (I/O)."""

import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from gpu_plan.executor.doctor.clock import synchronised
from gpu_plan.executor.doctor.facts_gpus import visible_gpus
from gpu_plan.executor.doctor.machine.facts import FolderFacts, MachineFacts
from gpu_plan.planner.cache_dir import installed
from gpu_plan.planner.errors import PreflightError
from gpu_plan.planner.hardware.ram import machine_ram_bytes, parse_meminfo

DEFAULT_PORT = 29500
"""Where accelerate and torchrun meet unless told otherwise."""
_PACKAGES = (
    "torch", "accelerate", "transformers", "deepspeed", "peft", "bitsandbytes", "torchao", "trl", "lightning",
    "datasets", "gpu-plan", "transformer-engine", "transformer-engine-torch", "flash-attn", "numpy", "safetensors",
)  # fmt: skip
_VARIABLES = re.compile(
    r"(?:MASTER_(?:ADDR|PORT)|(?:LOCAL_|GROUP_)?RANK|(?:LOCAL_)?WORLD_SIZE|TORCHELASTIC_\w+|NCCL_\w+|GLOO_\w+|TP_\w+"
    r"|CUDA_\w+|TORCH_DISTRIBUTED_DEBUG|ACCELERATE_\w+|FSDP_\w+|PARALLELISM_CONFIG_\w+|(?i:no_proxy|\w+_proxy)"
    r"|HF_HOME|HF_HUB_\w+|HUGGINGFACE_HUB_CACHE|XDG_CACHE_HOME|OMP_NUM_THREADS|PYTORCH_\w+)"
)
_TORCH_CUDA = re.compile(r"^cuda(?::[^=]*)? = (?:'([^']+)'|None)", re.MULTILINE)


def gather(working: Path, *, offload: Path | None = None, ports: Sequence[int] = (DEFAULT_PORT,)) -> MachineFacts:
    """What can be seen of this machine; what cannot is None. Imports no torch, changes nothing, takes a second."""
    shm = _folder(Path("/dev/shm"))
    environment = {name: value for name, value in os.environ.items() if _VARIABLES.fullmatch(name)}
    packages = installed(_PACKAGES)
    open_files, locked = _limits()
    return MachineFacts(
        kernel=os.uname().release if sys.platform == "linux" else None,
        gpus=visible_gpus(),
        torch=packages.get("torch"),
        torch_cuda=_torch_cuda(),
        nccl=_nccl(),
        shm_bytes=_size(Path("/dev/shm")),
        shm_free_bytes=shm.free_bytes if shm is not None else None,
        open_files=open_files,
        locked_bytes=locked,
        checkpoints=_folder(working),
        offload=_folder(offload) if offload is not None else None,
        cache=_folder(_cache(environment)),
        ram_bytes=_ram(),
        ram_available_bytes=_ram_available(),
        cores=_cores(),
        busy_ports=_busy(ports),
        asked_ports=tuple(ports),
        loopback=_loopback(),
        host_resolves=_host_resolves(),
        interfaces=_interfaces(),
        environment=environment,
        packages=packages,
        clock_synchronised=synchronised(),
        file_clock_skew_seconds=_file_skew(working),
    )


def _torch_cuda() -> str | None:
    """CUDA version in torch/version.py, read as text."""
    try:
        path = metadata.distribution("torch").locate_file("torch/version.py")
        match = _TORCH_CUDA.search(Path(str(path)).read_text())
    except (metadata.PackageNotFoundError, OSError, UnicodeDecodeError):
        return None
    return match.group(1) if match else None


def _nccl() -> str | None:
    return next(iter(installed(("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")).values()), None)


def _limits() -> tuple[int | None, int | None]:
    """Soft limits on open files and locked bytes; -1 for none, None where there are no such limits."""
    try:
        import resource
    except ImportError:
        return None, None
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    infinite = resource.RLIM_INFINITY
    return -1 if files == infinite else files, -1 if locked == infinite else locked


def _nearest(path: Path) -> Path:
    """`path`, or the nearest folder above it that exists."""
    present = path.absolute()
    while not present.is_dir() and present != present.parent:
        present = present.parent
    return present


def _folder(path: Path) -> FolderFacts | None:
    there = _nearest(path)
    try:
        state = os.statvfs(there)
    except OSError:
        return None
    return FolderFacts(
        path=str(path),
        free_bytes=state.f_bavail * state.f_frsize,
        writable=os.access(there, os.W_OK | os.X_OK) and not state.f_flag & os.ST_RDONLY,
        filesystem=_filesystem(there),
    )


def _filesystem(path: Path) -> str | None:
    """Type of the file system in which `path` lies, by the longest mount point above it."""
    try:
        lines = Path("/proc/mounts").read_text(errors="replace").splitlines()
    except OSError:
        return None
    resolved = path.resolve()
    best: tuple[str, str | None] = ("", None)
    for line in lines:
        fields = line.split()
        if len(fields) >= 3:
            point = fields[1].replace("\\040", " ")
            if resolved.is_relative_to(point) and len(point) >= len(best[0]):
                best = (point, fields[2])
    return best[1]


def _size(path: Path) -> int | None:
    try:
        state = os.statvfs(path)
    except OSError:
        return None
    return state.f_blocks * state.f_frsize


def _cache(environment: Mapping[str, str]) -> Path:
    """The hub cache as huggingface_hub/constants.py finds it."""
    if "HF_HUB_CACHE" in environment:
        return Path(environment["HF_HUB_CACHE"]).expanduser()
    home = environment.get("HF_HOME")
    if home is None:
        home = os.path.join(environment.get("XDG_CACHE_HOME", "~/.cache"), "huggingface")
    return Path(home).expanduser() / "hub"


def _ram() -> int | None:
    try:
        return machine_ram_bytes()
    except PreflightError:
        return None


def _ram_available() -> int | None:
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    return parse_meminfo(text.replace("MemTotal:", "MemWhole:").replace("MemAvailable:", "MemTotal:"))


def _cores() -> int | None:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count()


def _busy(ports: Sequence[int]) -> tuple[int, ...] | None:
    busy = []
    for port in ports:
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as held:
                held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                held.bind(("", port))
        except PermissionError:
            return None
        except OSError:
            busy.append(port)
    return tuple(busy)


def _loopback() -> bool:
    try:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen(1)
            with socket.create_connection(listening.getsockname(), timeout=2):
                return True
    except OSError:
        return False


def _host_resolves() -> bool:
    try:
        return bool(socket.getaddrinfo(socket.gethostname(), None))
    except OSError:
        return False


def _interfaces() -> tuple[str, ...] | None:
    folder = Path("/sys/class/net")
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return None
    return tuple(name for name in names if _is_up(folder / name))


def _is_up(path: Path) -> bool:
    try:
        flags = int((path / "flags").read_text(), 16)
    except (OSError, ValueError):
        return False
    return bool(flags & 1)


def _file_skew(folder: Path) -> float | None:
    """Seconds by which a file written just now is ahead of this machine's clock."""
    try:
        before = time.time()
        with tempfile.NamedTemporaryFile(dir=_nearest(folder)) as file:
            file.write(b"x")
            file.flush()
            written = os.fstat(file.fileno()).st_mtime
        after = time.time()
    except OSError:
        return None
    return written - after if written > after else min(written - before, 0.0)
