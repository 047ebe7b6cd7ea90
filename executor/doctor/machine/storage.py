"""Room for checkpoints, for offloaded tensors and for the Hugging Face cache."""

from gpu_plan.executor.doctor.finding import Finding
from gpu_plan.executor.doctor.machine.check import Check, fine, found, problem, unknown
from gpu_plan.executor.doctor.machine.facts import MachineFacts
from gpu_plan.executor.doctor.machine.need import Need
from gpu_plan.planner.units import GIB, format_bytes

_REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs"})
_VOLATILE = frozenset({"tmpfs", "ramfs"})


def checkpoints(facts: MachineFacts, need: Need) -> Check:
    """A new checkpoint is complete before the old one goes: room for two."""
    folder = facts.checkpoints
    if folder is None or folder.free_bytes is None:
        return unknown("checkpoint-disk", "the folder of runs cannot be looked at")
    seen = f"{format_bytes(folder.free_bytes)} free in {folder.path}"
    findings = list[Finding]()
    if folder.writable is False:
        what = "runs and checkpoints cannot be written"
        fix = "run in a folder where you may write"
        findings.append(problem("checkpoint-disk", "error", what, "the run cannot start", fix, place=folder.path))
    size = need.checkpoint_bytes
    if size is None:
        seen += "; how much is needed is not known without a plan"
        if folder.free_bytes < GIB:
            what = f"{format_bytes(folder.free_bytes)} free"
            fix = "free room, or write elsewhere"
            findings.append(
                problem("checkpoint-disk", "warning", what, "a checkpoint fails halfway", fix, place=folder.path)
            )
    elif folder.free_bytes < 2 * size:
        fails = folder.free_bytes < size
        what = f"{format_bytes(folder.free_bytes)} free; one checkpoint takes about {format_bytes(size)}"
        why = "the first checkpoint fails" if fails else "the second fails: the first goes only when it is complete"
        fix = "free room, or keep checkpoints elsewhere"
        findings.append(problem("checkpoint-disk", "error" if fails else "warning", what, why, fix, place=folder.path))
    if folder.filesystem in _VOLATILE:
        what = f"checkpoints would lie in {folder.filesystem}: memory"
        why = "they take RAM from the job and are gone with the machine"
        findings.append(problem("checkpoint-disk", "warning", what, why, "keep them on a disk", place=folder.path))
    return found("checkpoint-disk", seen, *findings)


def offload(facts: MachineFacts, need: Need) -> Check:
    """Tensors that the plan keeps on disk."""
    if not need.nvme_bytes:
        return fine("offload-disk", "the plan offloads nothing to disk")
    folder = facts.offload
    if folder is None or folder.free_bytes is None:
        return unknown("offload-disk", f"{format_bytes(need.nvme_bytes)} go to disk, but where is not known")
    seen = f"{format_bytes(folder.free_bytes)} free in {folder.path}"
    findings = list[Finding]()
    if folder.free_bytes < need.nvme_bytes:
        what = f"{format_bytes(folder.free_bytes)} free; {format_bytes(need.nvme_bytes)} are offloaded"
        fix = "free room, or name a larger disk"
        findings.append(
            problem("offload-disk", "error", what, "the disk runs full at the start", fix, place=folder.path)
        )
    if folder.filesystem in _REMOTE:
        what = f"offloading to {folder.filesystem}"
        why = "every step would wait for the network"
        findings.append(
            problem("offload-disk", "warning", what, why, "offload to a local NVMe disk", place=folder.path)
        )
    return found("offload-disk", seen, *findings)


def cache(facts: MachineFacts, need: Need) -> Check:
    """Models and data sets are downloaded there."""
    folder = facts.cache
    if folder is None or folder.writable is None:
        return unknown("model-cache", "the Hugging Face cache cannot be looked at")
    free = "unknown room" if folder.free_bytes is None else f"{format_bytes(folder.free_bytes)} free"
    findings = list[Finding]()
    if not folder.writable:
        what = "the Hugging Face cache cannot be written"
        fix = "set HF_HOME to a folder where you may write"
        findings.append(problem("model-cache", "error", what, "downloads and locks fail", fix, place=folder.path))
    if folder.free_bytes is not None and need.model_bytes and folder.free_bytes < need.model_bytes:
        what = f"{free}; the model takes {format_bytes(need.model_bytes)} where it is not there already"
        fix = "free room, or set HF_HOME elsewhere"
        findings.append(problem("model-cache", "warning", what, "the download fails", fix, place=folder.path))
    if folder.filesystem in _REMOTE:
        what = f"the cache lies on {folder.filesystem}"
        why = "all ranks read the weights over the network at once, and file locks may not hold there"
        findings.append(problem("model-cache", "note", what, why, "copy the model to a local disk", place=folder.path))
    return found("model-cache", f"{free} in {folder.path}", *findings)
