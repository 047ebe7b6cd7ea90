"""Kernel, RAM, shared memory, limits, cores and the clock."""

from gpu_plan.executor.doctor.finding import Finding
from gpu_plan.executor.doctor.machine.check import Check, either, fine, found, numbers, problem, unknown
from gpu_plan.executor.doctor.machine.facts import MachineFacts
from gpu_plan.executor.doctor.machine.need import Need
from gpu_plan.planner.units import GIB, MIB, format_bytes

_OLD_KERNEL = (5, 5)
"""Below it Accelerate warns of hangs: accelerate/utils/other.py check_os_kernel."""
_SHM_PER_RANK = 64 * MIB
_SHM_WANTED = GIB
_FILES_WANTED = 4096
_FILES_LEAST = 1024
_SKEW_SECONDS = 2.0


def kernel(facts: MachineFacts, need: Need) -> Check:
    """Old kernels hang."""
    if facts.kernel is None:
        return unknown("kernel", "this is not Linux")
    version = numbers(facts.kernel)
    if not version:
        return unknown("kernel", f"the release {facts.kernel!r} has no number")
    if version < _OLD_KERNEL:
        what = f"Linux {facts.kernel} is older than 5.5"
        why = "processes have been seen to hang with it; Accelerate warns of it"
        return found(
            "kernel", what, problem("kernel", "warning", what, why, "run on a newer kernel, or watch for hangs")
        )
    return fine("kernel", f"Linux {facts.kernel}")


def ram(facts: MachineFacts, need: Need) -> Check:
    """Offloaded tensors, and the ranks' copies of the model while they load it."""
    if facts.ram_bytes is None:
        return unknown("ram", "the size of RAM cannot be read")
    available = facts.ram_available_bytes if facts.ram_available_bytes is not None else facts.ram_bytes
    available = min(available, facts.ram_bytes)
    seen = f"{format_bytes(available)} of {format_bytes(facts.ram_bytes)} available"
    findings = []
    if need.host_bytes and need.host_bytes > available:
        what = f"the plan holds {format_bytes(need.host_bytes)} in RAM; {format_bytes(available)} are available"
        why = "the kernel kills a rank, or the machine swaps"
        findings.append(problem("ram", "error", what, why, "offload less, use fewer ranks, or free RAM"))
    elif need.loading_bytes and need.loading_bytes > available:
        what = f"loading holds up to {format_bytes(need.loading_bytes)} in RAM; {format_bytes(available)} are available"
        why = "every rank may read the whole model before it moves to the GPU: a rank is killed"
        fix = "load in the planned dtype or under FSDP with cpu_ram_efficient_loading, or free RAM"
        findings.append(problem("ram", "warning", what, why, fix))
    return found("ram", seen, *findings)


def shared_memory(facts: MachineFacts, need: Need) -> Check:
    """NCCL and DataLoader workers hand tensors over in /dev/shm."""
    if facts.shm_bytes is None:
        return unknown("shared-memory", "/dev/shm cannot be read")
    free = facts.shm_free_bytes if facts.shm_free_bytes is not None else facts.shm_bytes
    seen = f"{format_bytes(free)} of {format_bytes(facts.shm_bytes)} free"
    least = _SHM_PER_RANK * max(need.ranks or 1, 1)
    fix = "start the container with --ipc=host or --shm-size=16g, or remount /dev/shm larger"
    if free <= least:
        what = f"/dev/shm has {format_bytes(free)} free"
        why = "DataLoader workers die with a bus error, and NCCL cannot make its buffers"
        severity = either((need.ranks or 1) > 1 and not need.on_cpu, "error", "warning")
        return found("shared-memory", seen, problem("shared-memory", severity, what, why, fix, place="/dev/shm"))
    if free < _SHM_WANTED:
        what = f"/dev/shm has {format_bytes(free)} free"
        why = "several DataLoader workers with large batches may die with a bus error"
        return found("shared-memory", seen, problem("shared-memory", "warning", what, why, fix, place="/dev/shm"))
    return fine("shared-memory", seen)


def limits(facts: MachineFacts, need: Need) -> Check:
    """Open files, and memory that may be locked."""
    if facts.open_files is None:
        return unknown("limits", "limits cannot be read")
    findings = list[Finding]()
    files = "unlimited" if facts.open_files < 0 else str(facts.open_files)
    if 0 <= facts.open_files < _FILES_WANTED:
        severe = facts.open_files < _FILES_LEAST
        what = f"at most {files} open files for each process"
        why = "DataLoader workers and sharded checkpoints fail with 'Too many open files'"
        severity = either(severe, "warning", "note")
        findings.append(problem("limits", severity, what, why, "ulimit -n 65536", place="ulimit -n"))
    locked = facts.locked_bytes
    if need.nodes > 1 and locked is not None and 0 <= locked < GIB:
        what = f"at most {format_bytes(locked)} of locked memory"
        why = "InfiniBand cannot register its buffers: NCCL fails or falls back to TCP"
        findings.append(problem("limits", "warning", what, why, "ulimit -l unlimited", place="ulimit -l"))
    shown = "unknown" if locked is None else "unlimited" if locked < 0 else format_bytes(locked)
    return found("limits", f"{files} open files, {shown} locked", *findings)


def cores(facts: MachineFacts, need: Need) -> Check:
    """Each rank wants a core of its own at least."""
    if facts.cores is None:
        return unknown("cores", "the number of cores cannot be read")
    ranks = need.ranks or 1
    if facts.cores < ranks:
        what = f"{facts.cores} cores for {ranks} ranks"
        why = "ranks take turns: every collective waits for the one that is not running"
        severity = either(need.on_cpu, "note", "warning")
        return found("cores", what, problem("cores", severity, what, why, "ask for more cores, or plan fewer ranks"))
    return fine("cores", f"{facts.cores} cores")


def clock(facts: MachineFacts, need: Need) -> Check:
    """Newest checkpoints, timeouts and tokens go by the clock."""
    findings = []
    skew = facts.file_clock_skew_seconds
    if skew is not None and abs(skew) > _SKEW_SECONDS:
        what = f"the file system's clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this machine's"
        why = "which checkpoint is the newest may be judged wrongly"
        findings.append(problem("clock", "warning", what, why, "let both keep time (chrony, systemd-timesyncd)"))
    if facts.clock_synchronised is False and need.nodes > 1:
        what = "no time service keeps the clock"
        why = "logs and leases of several nodes disagree"
        findings.append(problem("clock", "warning", what, why, "start chrony or systemd-timesyncd on every node"))
    if facts.clock_synchronised is None and skew is None:
        return unknown("clock", "neither the kernel nor the file system tells")
    kept = {True: "kept by a time service", False: "not kept by a time service", None: "synchronisation not known"}
    return found("clock", kept[facts.clock_synchronised], *findings)
