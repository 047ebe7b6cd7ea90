"""What was seen of a machine: plain values, None where it could not be seen."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """One visible GPU as the vendor's tool prints it."""

    index: int
    name: str
    total_bytes: int
    used_bytes: int | None = None
    """By everything that runs on it now."""
    driver: str | None = None
    """Such as `570.124.06`."""
    compute_mode: str | None = None
    """`Default`, `Exclusive_Process`, `Prohibited`."""
    mig: str | None = None
    """`Enabled`, `Disabled`, or what else the tool prints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFacts:
    """A folder in which something is to be written; where it does not exist, of the nearest one above."""

    path: str
    free_bytes: int | None = None
    writable: bool | None = None
    filesystem: str | None = None
    """`ext4`, `nfs4`, `overlay`, `tmpfs`, ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """One machine."""

    kernel: str | None = None
    """Release of the Linux kernel, such as `6.8.0-45-generic`; None elsewhere."""
    gpus: tuple[GpuFacts, ...] | None = None
    """None where no vendor's tool answers although device files are there; empty where there is no GPU."""
    torch: str | None = None
    """Version of the installed torch."""
    torch_cuda: str | None = None
    """CUDA version that it was built for; None for a build without."""
    nccl: str | None = None
    """Version of the installed NCCL package."""
    shm_bytes: int | None = None
    """Size of /dev/shm."""
    shm_free_bytes: int | None = None
    open_files: int | None = None
    """Soft limit on open files; -1 where there is none."""
    locked_bytes: int | None = None
    """Soft limit on locked memory; -1 where there is none."""
    checkpoints: FolderFacts | None = None
    """Where runs and checkpoints go."""
    offload: FolderFacts | None = None
    """Where tensors are offloaded to disk; None where nothing is."""
    cache: FolderFacts | None = None
    """The Hugging Face cache."""
    ram_bytes: int | None = None
    """That this process may use: the machine's, or its control group's limit."""
    ram_available_bytes: int | None = None
    cores: int | None = None
    """That this process may use."""
    busy_ports: tuple[int, ...] | None = None
    """Of the ports that were asked for."""
    asked_ports: tuple[int, ...] = ()
    loopback: bool | None = None
    """Whether a socket can be bound and reached on 127.0.0.1."""
    host_resolves: bool | None = None
    """Whether this machine's own name leads to an address."""
    interfaces: tuple[str, ...] | None = None
    """Names of network interfaces that are up."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that matter to a launch, as they are set."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Installed versions by distribution name."""
    clock_synchronised: bool | None = None
    """Whether the kernel says that a time service keeps the clock."""
    file_clock_skew_seconds: float | None = None
    """How far the file system's clock runs ahead of this machine's."""
