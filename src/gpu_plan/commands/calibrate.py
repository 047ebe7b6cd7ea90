"""`plan calibrate`: measures this machine for two minutes; later plans for it rest on that, and say so."""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_plan.planner.errors import ExitCode, InputError, OutputError, UsageError

if TYPE_CHECKING:
    from gpu_plan.planner.hardware.cluster import Cluster
    from gpu_plan.planner.speed.calibration.record import Calibration


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--gpus", default="auto", metavar="SPEC", help="auto (this machine's GPUs, else cpu) or cpu")
    parser.add_argument("--quick", action="store_true", help="a quarter of a minute: fewer repetitions, no collectives")
    parser.add_argument("--show", action="store_true", help="print the record that plans rest on; measure nothing")
    parser.add_argument("--forget", action="store_true", help="drop the record of these devices")
    parser.add_argument("--import", dest="file", metavar="FILE", help="keep a record that was written on this machine")
    parser.add_argument("--json", action="store_true", help="print the record as JSON")
    parser.add_argument("-o", dest="output", metavar="FILE", help="also write the record there")
    parser.add_argument("--force", action="store_true", help="overwrite that file")


def run(args: argparse.Namespace) -> int:
    """Measures, keeps and prints. UsageError, InputError, OutputError in one line."""
    from gpu_plan.planner.speed.calibration.record import to_json
    from gpu_plan.planner.speed.calibration.store import path_of, write_record

    if sum((args.show, args.forget, args.file is not None)) > 1:
        raise UsageError("--show, --forget and --import are three things: give one")
    cluster = _this_cluster(args.gpus)
    path = path_of(cluster.gpu.id)
    output = _output(args)
    if args.forget:
        path.unlink(missing_ok=True)
        print(f"no calibration of {cluster.gpu.short} is kept", file=sys.stderr)
        return ExitCode.OK
    if args.show:
        record = _kept(cluster)
    elif args.file is not None:
        record = _imported(Path(args.file), cluster)
        write_record(path, record)
    else:
        record = _measured(cluster, args.quick)
        write_record(path, record)
    if output is not None:
        write_record(output, record)
    print(to_json(record) if args.json else page(record), end="")
    print(f"plan: kept in {path}; plans for this machine say `measured here`", file=sys.stderr)
    return ExitCode.OK


def _output(args: argparse.Namespace) -> Path | None:
    if args.output is None:
        return None
    path = Path(args.output)
    if path.exists() and not args.force:
        raise OutputError(f"{path} is there already: give --force, or another name")
    if not path.parent.is_dir():
        raise OutputError(f"{path}: its folder is not there")
    return path


def _this_cluster(spec: str) -> "Cluster":
    """This machine, its GPUs or its processor."""
    from gpu_plan.planner.hardware.detect import detect_cluster
    from gpu_plan.planner.options.cluster import find_cluster

    found = detect_cluster()
    if spec.strip().lower() == "auto":
        return found
    asked = find_cluster(spec)
    if asked.gpu.is_cpu:
        return asked
    if asked.gpu.id != found.gpu.id or asked.nodes > 1 or asked.gpus_per_node > found.gpus_per_node:
        raise UsageError(f"--gpus {spec}: only this machine can be measured, and it has {found.spec}: give auto or cpu")
    return asked


def _measured(cluster: "Cluster", quick: bool) -> "Calibration":
    try:
        from gpu_plan.executor.calibrate.measure import measure
    except ImportError as problem:
        raise UsageError(f"plan calibrate runs torch, which is not installed: {problem}") from None
    busy = busy_words(_load(), os.cpu_count() or 1)
    if busy is not None:
        print(f"plan: {busy}", file=sys.stderr)
    return measure(cluster, quick=quick, tell=lambda text: print(f"plan: {text} ...", file=sys.stderr))


def _load() -> float:
    """Processes that run or wait to, over the last minute; 0 where the system does not say."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def busy_words(load: float, processors: int) -> str | None:
    """What other work does to the figures; None where the machine is as good as idle."""
    if load < max(1.0, processors / 4):
        return None
    return (
        f"this machine is at work (load {load:.1f} on {processors} processors): what is measured now is what it leaves;"
        " calibrate again when it is idle"
    )


def _kept(cluster: "Cluster") -> "Calibration":
    from gpu_plan.planner.speed.calibration.store import kept_for

    kept = kept_for(cluster)
    if kept.record is None:
        raise InputError(kept.refused or f"nothing was measured on {cluster.gpu.short} yet: run `plan calibrate`")
    return kept.record


def _imported(path: Path, cluster: "Cluster") -> "Calibration":
    from gpu_plan.planner.speed.calibration.machine import this_machine
    from gpu_plan.planner.speed.calibration.store import read_record

    record = read_record(path)
    other = record.machine.differences(this_machine(cluster))
    if other:
        raise InputError(f"{path} is of another machine ({'; '.join(other)}): run `plan calibrate` here")
    return record


def page(record: "Calibration") -> str:
    """What was measured, in lines."""
    machine = record.machine
    facts = [machine.device, f"{machine.processors} processors"]
    facts += [f"driver {machine.driver}"] if machine.driver else []
    facts += [f"{machine.power_limit_watts:g} W"] if machine.power_limit_watts else []
    lines = [f"{', '.join(facts)}; torch {record.torch}, {record.made}", ""]
    for dtype in dict.fromkeys(row.dtype for row in record.products):
        rows = sorted((row for row in record.products if row.dtype == dtype), key=lambda row: row.flops)
        small, large = rows[0], rows[-1]
        lines.append(
            f"products {dtype:9} {_rate(large.rate, 1e12, 'TFLOP/s')}; small ones {small.rate[1] / 1e12:.3g} TFLOP/s"
        )
    for fused in record.attention:
        lines.append(f"attention {fused.dtype} {fused.direction:8} {_rate(fused.rate, 1e12, 'TFLOP/s')}")
    lines.append(f"memory {_rate(record.memory, 1e9, 'GB/s')}")
    slow, usual, fast = (seconds * 1e6 for seconds in record.operator_seconds)
    lines.append(f"one small operator {usual:.1f} us ({fast:.1f} to {slow:.1f})")
    if record.host_copy:
        lines.append(f"copies to the device {_rate(record.host_copy, 1e9, 'GB/s')}")
    if record.disk_write and record.disk_read:
        lines.append(f"files {record.disk_write / 1e9:.2g} GB/s written, {record.disk_read / 1e9:.2g} GB/s read back")
    for row in record.exchanges:
        lines.append(f"{row.kind} of {row.num_bytes:,} bytes among {row.ranks}: {row.seconds[1] * 1e6:,.0f} us")
    if record.learnt is not None:
        lines.append(
            f"{len(record.runs)} runs compared: they took {record.learnt:.2f} times what was expected (median)"
        )
    return "\n".join(lines) + "\n"


def _rate(bounds: tuple[float, float, float], unit: float, name: str) -> str:
    slow, usual, fast = (value / unit for value in bounds)
    return f"{usual:.3g} {name} ({slow:.3g} to {fast:.3g})"
