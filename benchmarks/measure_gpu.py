"""Measures training steps on one CUDA GPU: about sixty configurations in under ten minutes.

    python -m benchmarks.measure_gpu --out results/h200

needs torch and transformers, accelerate for the loops that use it, peft and bitsandbytes for the cases that say so;
no network and nothing else of this repository but the configs in planner/model/catalog. Every row is written to
OUT/rows.jsonl as soon as it is known, so a run that is killed keeps what it has; the most telling cases come first.
`--dry` runs every case so small that a CPU does, `--device cpu --tiny` four cases, both to check the suite itself.
benchmarks/compare_gpu.py reads the folder.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # started as a file
    sys.path.insert(0, str(ROOT))

from benchmarks.gpu.cases import Case, dry_groups, groups  # noqa: E402

FORMAT = 1
ROWS = "rows.jsonl"
_PACKAGES = ("torch", "transformers", "accelerate", "peft", "bitsandbytes", "numpy", "triton", "kernels")
_GRACE_SECONDS = 10.0
"""How long before the end of the budget no further case starts."""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    made.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for rows.jsonl and snapshots")
    made.add_argument("--seconds", type=float, default=540.0, help="time for everything (540)")
    made.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    made.add_argument("--tiny", action="store_true", help="four small cases, to check the script")
    made.add_argument("--dry", action="store_true", help="every case, small, on the CPU: a check of the whole suite")
    made.add_argument("--only", metavar="TEXT", help="only cases whose name or group holds TEXT")
    made.add_argument("--list", action="store_true", help="print the cases and stop")
    made.add_argument("--worker", help=argparse.SUPPRESS)
    made.add_argument("--deadline", type=float, help=argparse.SUPPRESS)
    return made


def chosen(arguments: argparse.Namespace) -> dict[str, list[Case]]:
    """The cases to run, by group; groups without any are left out."""
    text = arguments.only or ""
    every = dry_groups(config_of) if arguments.dry else groups(arguments.tiny)
    found = {name: [case for case in cases if text in case.id or text in name] for name, cases in every.items()}
    return {name: cases for name, cases in found.items() if cases}


def config_of(case: Case) -> dict[str, Any]:
    """The published config of a case's model."""
    path = ROOT / "planner" / "model" / "catalog" / f"{case.model.replace('/', '--')}.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def append(out: Path, row: dict[str, Any]) -> None:
    """One line, on disk when this returns."""
    with (out / ROWS).open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(row) + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def nvidia_smi(query: str) -> list[str]:
    """Answer lines of nvidia-smi, or nothing where there is none."""
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        return [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return []


def environment(device: str) -> dict[str, Any]:
    """Every version that can matter, and the device. Imports torch."""
    import torch

    versions: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    versions["torch"] = torch.__version__
    found: dict[str, Any] = {
        "versions": versions,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    for name in (
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_ALLOC_CONF",
        "CUBLAS_WORKSPACE_CONFIG",
        "CUDA_MODULE_LOADING",
    ):
        found.setdefault("variables", {})[name] = os.environ.get(name)
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        found |= {
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "driver": next(iter(nvidia_smi("--query-gpu=driver_version")), None),
            "gpu": {
                "name": properties.name,
                "capability": [properties.major, properties.minor],
                "sm_count": properties.multi_processor_count,
                "total_bytes": torch.cuda.mem_get_info(0)[1],
                "properties_total_bytes": properties.total_memory,
            },
        }
    return found


def _alone() -> None:
    """One thread: oneDNN shares out 16-bit products of few rows over several, each of which sums into a scratchpad of
    its own, 65,536 bytes of a small model that no GPU has."""
    import torch

    torch.set_num_threads(1)


def work(arguments: argparse.Namespace) -> int:
    """One worker: a group's cases in a process of their own."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from benchmarks.gpu.memory import CpuMemory, CudaMemory, Memory, context_probe

    memory: Memory = CpuMemory() if arguments.device == "cpu" else CudaMemory()
    if arguments.device == "cpu":
        _alone()
    about: dict[str, Any] = {"kind": "worker", "group": arguments.worker}
    if isinstance(memory, CudaMemory):
        about["context"] = context_probe(memory)
    append(arguments.out, about | {"environment": environment(arguments.device)})
    for case in chosen(arguments)[arguments.worker]:
        if time.time() > arguments.deadline - _GRACE_SECONDS:
            break
        append(arguments.out, row_of(case, memory, arguments.out, arguments.worker))
    if isinstance(memory, CudaMemory):
        used = nvidia_smi("--query-gpu=memory.used")
        end = {
            "kind": "worker-end",
            "group": arguments.worker,
            "nvidia_smi_used_mib": used,
            "now": memory.now(),
        }
        append(arguments.out, end)
    return 0


def row_of(case: Case, memory: Any, out: Path, group: str) -> dict[str, Any]:
    """Measures one case; whatever goes wrong is the row's to say."""
    import torch

    from benchmarks.gpu.loop import measure
    from benchmarks.gpu.models import CannotRun

    start = time.time()
    row: dict[str, Any] = {"kind": "case", "group": group, "case": case.as_row()}
    snapshot = out / f"snapshot-{case.id.replace(' ', '_').replace('=', '-')}.pickle" if case.snapshot else None
    memory.fresh()
    row["fresh"] = memory.now()
    out_of_memory: Any = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)
    try:
        row |= {"status": "ok", **measure(case, memory, snapshot)}
    except CannotRun as problem:
        row |= {"status": "skipped", "reason": str(problem)}
    except out_of_memory as problem:
        row |= {"status": "oom", "reason": str(problem).splitlines()[0][:500], "at_failure": memory.now()}
        row["counts"] = memory.counts()
        problem.__traceback__ = None
    except Exception as problem:
        where = traceback.extract_tb(problem.__traceback__)[-1]
        text = (str(problem).splitlines() or [""])[0][:300]
        row |= {
            "status": "error",
            "reason": f"{type(problem).__name__}: {text}",
            "where": f"{where.name}:{where.lineno}",
        }
        problem.__traceback__ = None
    if snapshot is not None and snapshot.exists():
        row["snapshot"] = snapshot.name
    # The next case starts with `fresh`; only this one's own frames could still hold its tensors.
    row["seconds"] = time.time() - start
    print(f"{row['status']:8}{row['seconds']:6.1f} s  {case.id}", file=sys.stderr, flush=True)
    return row


def supervise(arguments: argparse.Namespace) -> int:
    """Starts the workers one after the other until the time is spent; says which cases were left."""
    deadline = time.time() + arguments.seconds
    arguments.out.mkdir(parents=True, exist_ok=True)
    if (arguments.out / ROWS).exists():
        print(f"measure_gpu: {arguments.out / ROWS} exists: name another folder", file=sys.stderr)
        return 2
    head = {"kind": "run", "format": FORMAT, "device": arguments.device, "tiny": arguments.tiny, "dry": arguments.dry}
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    used = nvidia_smi("--query-gpu=memory.used") if arguments.device == "cuda" else []
    append(
        arguments.out,
        head | {"started": started, "budget_seconds": arguments.seconds, "used_before_mib": used},
    )
    for name in chosen(arguments):
        left = deadline - time.time()
        if left < 2 * _GRACE_SECONDS:
            break
        _start_worker(arguments, name, deadline)
    return _finish(arguments)


def _start_worker(arguments: argparse.Namespace, name: str, deadline: float) -> None:
    command = [
        sys.executable,
        str(Path(__file__).resolve()),
        "--out",
        str(arguments.out),
        "--device",
        arguments.device,
    ]
    command += ["--worker", name, "--deadline", str(deadline)]
    command += ["--tiny"] if arguments.tiny else []
    command += ["--dry"] if arguments.dry else []
    command += ["--only", arguments.only] if arguments.only else []
    try:
        code = subprocess.run(command, timeout=max(1.0, deadline - time.time()), check=False).returncode
    except subprocess.TimeoutExpired:
        code = None
    if code != 0:
        reason = "stopped: out of time" if code is None else f"exit code {code}"
        append(arguments.out, {"kind": "worker-failed", "group": name, "reason": reason})


def _finish(arguments: argparse.Namespace) -> int:
    rows = [json.loads(line) for line in (arguments.out / ROWS).read_text(encoding="utf-8").splitlines()]
    seen = {row["case"]["id"] for row in rows if row["kind"] == "case"}
    left = [case.id for cases in chosen(arguments).values() for case in cases if case.id not in seen]
    append(arguments.out, {"kind": "end", "measured": len(seen), "left_out": left})
    done = sum(row["kind"] == "case" and row["status"] == "ok" for row in rows)
    print(f"{done} measured, {len(seen) - done} otherwise, {len(left)} left out: {arguments.out / ROWS}")
    return 0 if done else 1


def main(words: Sequence[str] | None = None) -> int:
    """Entry point."""
    arguments = parser().parse_args(words)
    if arguments.dry:
        arguments.device = "cpu"
    if arguments.list:
        for name, cases in chosen(arguments).items():
            print("\n".join(f"{name:15} {case.id}" for case in cases))
        return 0
    return work(arguments) if arguments.worker else supervise(arguments)


if __name__ == "__main__":
    sys.exit(main())
