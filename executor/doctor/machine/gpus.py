"""GPUs: how many, which, equal ones, whether driver and torch go together, and who else is on them."""

from gpu_plan.executor.doctor.finding import Finding
from gpu_plan.executor.doctor.machine.check import Check, either, fine, found, numbers, problem, unknown
from gpu_plan.executor.doctor.machine.facts import GpuFacts, MachineFacts
from gpu_plan.executor.doctor.machine.need import Need
from gpu_plan.planner.units import GIB, format_bytes

_DRIVER_FOR_CUDA = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580, 65, 6)}
"""Oldest Linux driver by CUDA's major version: NVIDIA's CUDA compatibility guide, minor version compatibility."""
_BUSY_BYTES = GIB // 2


def gpus_present(facts: MachineFacts, need: Need) -> Check:
    """As many GPUs as the plan wants, of its kind."""
    if facts.gpus is None:
        return unknown("gpus", "device files of GPUs are there, but the vendor's tool does not answer")
    seen = _listed(facts.gpus)
    if need.on_cpu or need.ranks is None:
        return fine("gpus", seen)
    if len(facts.gpus) < need.ranks:
        what = f"{len(facts.gpus)} visible GPUs; the plan wants {need.ranks} on each machine"
        fix = "run where they are, unset CUDA_VISIBLE_DEVICES, or plan with --gpus auto"
        return found("gpus", seen, problem("gpus", "error", what, "the launch fails or shares GPUs", fix))
    other = {gpu.name for gpu in facts.gpus if not _same_kind(gpu.name, need.gpu_name or "")}
    if other and need.gpu_name:
        what = f"the plan is for {need.gpu_name}; here is {', '.join(sorted(other))}"
        why = "memory and speed were computed for another GPU"
        return found("gpus", seen, problem("gpus", "warning", what, why, "plan again with --gpus auto"))
    return fine("gpus", seen)


def _listed(gpus: tuple[GpuFacts, ...]) -> str:
    if not gpus:
        return "no GPU"
    names = sorted({gpu.name for gpu in gpus})
    return f"{len(gpus)} x {' and '.join(names)}"


def _same_kind(seen: str, planned: str) -> bool:
    """Whether two names mean one kind of GPU, as far as their words tell: `NVIDIA H100 80GB HBM3` is an `H100`."""
    brands = {"NVIDIA", "GEFORCE", "RTX", "TESLA", "AMD", "INSTINCT"}
    words = [
        {word for word in name.upper().replace("-", " ").split() if word not in brands} for name in (seen, planned)
    ]
    return bool(words[0] & words[1]) or not words[1]


def gpus_equal(facts: MachineFacts, need: Need) -> Check:
    """All ranks wait for the slowest GPU, and the smallest one runs out first."""
    if not facts.gpus:
        return (
            fine("equal-gpus", "fewer than two GPUs")
            if facts.gpus is not None
            else unknown("equal-gpus", "no tool answers")
        )
    names = sorted({gpu.name for gpu in facts.gpus})
    sizes = [gpu.total_bytes for gpu in facts.gpus]
    if len(names) > 1:
        what = f"different GPUs: {', '.join(names)}"
        why = "each step takes as long as on the slowest, and the smallest runs out of memory first"
        fix = "choose equal ones with CUDA_VISIBLE_DEVICES"
        return found("equal-gpus", what, problem("equal-gpus", "error", what, why, fix))
    if max(sizes) - min(sizes) > GIB // 4:
        what = f"GPUs of one name with {format_bytes(min(sizes))} to {format_bytes(max(sizes))}"
        why = "the smallest runs out of memory first"
        fix = "choose equal ones with CUDA_VISIBLE_DEVICES"
        return found("equal-gpus", what, problem("equal-gpus", "warning", what, why, fix))
    return fine("equal-gpus", f"{len(sizes)} of {format_bytes(sizes[0])}")


def driver(facts: MachineFacts, need: Need) -> Check:
    """The driver must know the CUDA version for which torch was built."""
    if not facts.gpus:
        return fine("driver", "no GPU to drive") if facts.gpus is not None else unknown("driver", "no tool answers")
    if facts.torch is None:
        return unknown("driver", "torch is not installed in this environment")
    if facts.torch_cuda is None:
        what = f"torch {facts.torch} is built without CUDA, and this machine has GPUs"
        fix = "install torch for CUDA: https://pytorch.org/get-started/locally"
        return found("driver", what, problem("driver", "error", what, "nothing would run on the GPUs", fix))
    version = facts.gpus[0].driver
    if version is None:
        return unknown("driver", "the tool does not print the driver's version")
    seen = f"driver {version}, torch built for CUDA {facts.torch_cuda}"
    oldest = _DRIVER_FOR_CUDA.get((numbers(facts.torch_cuda) or (0,))[0])
    if oldest is None:
        return unknown("driver", f"{seen}: the oldest driver for that CUDA version is not on record")
    if numbers(version) < oldest:
        wanted = ".".join(map(str, oldest))
        what = f"driver {version} is older than CUDA {facts.torch_cuda} needs ({wanted})"
        fix = "update the driver, or install a torch built for an older CUDA"
        return found("driver", seen, problem("driver", "error", what, "torch sees no GPU", fix))
    return fine("driver", seen)


def gpus_free(facts: MachineFacts, need: Need) -> Check:
    """What other processes hold is missing to the job; a mode may keep it out altogether."""
    if not facts.gpus:
        return fine("free-gpus", "no GPU") if facts.gpus is not None else unknown("free-gpus", "no tool answers")
    findings = list[Finding]()
    for gpu in facts.gpus:
        place = f"GPU {gpu.index}"
        used = gpu.used_bytes or 0
        if used > _BUSY_BYTES:
            short = need.headroom_bytes is not None and used > need.headroom_bytes
            what = f"{format_bytes(used)} are in use already"
            why = "the plan leaves less than that free: out of memory" if short else "the job has that much less"
            severity = either(short, "error", "warning")
            findings.append(problem("free-gpus", severity, what, why, "end what runs there (nvidia-smi)", place=place))
        if gpu.compute_mode in {"Prohibited", "Exclusive_Process"}:
            refused = gpu.compute_mode == "Prohibited"
            what = f"compute mode is {gpu.compute_mode}"
            why = "no process may compute on it" if refused else "a second process on it is refused"
            fix = "nvidia-smi -c DEFAULT"
            findings.append(problem("free-gpus", "error" if refused else "note", what, why, fix, place=place))
        if gpu.mig == "Enabled":
            what = "MIG is enabled"
            why = "NCCL cannot join MIG slices of one GPU, and a slice has a part of the memory"
            severity = either((need.ranks or 2) > 1, "error", "note")
            findings.append(problem("free-gpus", severity, what, why, "use whole GPUs for several ranks", place=place))
    if all(gpu.used_bytes is None for gpu in facts.gpus) and not findings:
        return unknown("free-gpus", "the tool does not print how much is in use")
    return found("free-gpus", f"most in use: {format_bytes(max(gpu.used_bytes or 0 for gpu in facts.gpus))}", *findings)


def nccl(facts: MachineFacts, need: Need) -> Check:
    """Several GPUs talk through NCCL."""
    if not facts.gpus or need.on_cpu:
        return fine("nccl", "not needed without GPUs") if facts.gpus is not None else unknown("nccl", "no tool answers")
    if facts.nccl is None:
        return unknown("nccl", "no NCCL package: torch may bring its own, or the system's is used")
    several = (need.ranks or len(facts.gpus)) * need.nodes > 1
    if several and numbers(facts.nccl) < (2, 18):
        what = f"NCCL {facts.nccl} is older than 2.18"
        why = "torch 2.9 and later expect at least that (ncclCommSplit, non-blocking communicators)"
        return found("nccl", what, problem("nccl", "warning", what, why, "update torch, or its nvidia-nccl package"))
    return fine("nccl", f"NCCL {facts.nccl}")
