"""`plan gpus [QUERY]`: the known GPUs, or everything known about one, each value with its source."""

import argparse
import json
import sys
import textwrap
from collections.abc import Mapping

from gpu_plan.planner.errors import ExitCode, InputError
from gpu_plan.planner.hardware.catalog import find_gpu, load_gpus
from gpu_plan.planner.hardware.gpu import Gpu
from gpu_plan.planner.hardware.names import squash
from gpu_plan.planner.hardware.user_gpus import parse_user_gpu
from gpu_plan.planner.options.config import user_gpus
from gpu_plan.planner.units import MIB, format_gib

_WIDTH = 80
_HEADER = ("GPU", "GiB", "GB/s", "fp16", "bf16", "link", "node", "$/h")
_BASIS_MARKS = {"torch": "", "nvidia-smi": "s", "vendor tool": "s", "marketed": "m", "user": "u"}
_LEGEND = (
    "GiB: usable, as torch counts it; s = as the vendor's tool prints it, m = as marketed (both more than torch gets);"
    " GB/s: of memory; link: GB/s to other GPUs; fp16, bf16: dense teraflops; $/h: the lowest published rent"
)
_LEGEND_USER = "; u = yours, from plan.toml or [tool.plan] in pyproject.toml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("query", nargs="?", metavar="QUERY", help="a GPU, or part of a name")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print to stdout; InputError when nothing matches the query."""
    extra = user_gpus()
    own = [parse_user_gpu(name, raw) for name, raw in extra.items()]
    gpus = [*own, *load_gpus().values()]
    exact: Gpu | None = None
    if args.query is not None:
        exact, gpus = _matching(args.query, gpus, extra)
    if args.json:
        shown = [exact] if exact else gpus
        print(json.dumps({"schema_version": 1, "gpus": [gpu_document(gpu) for gpu in shown]}, indent=2))
    elif exact:
        print(detail(exact))
    else:
        print(table(gpus))
        print(textwrap.fill(_LEGEND + (_LEGEND_USER if own else ""), _WIDTH), file=sys.stderr)
    return ExitCode.OK


def _matching(query: str, gpus: list[Gpu], extra: Mapping[str, object]) -> tuple[Gpu | None, list[Gpu]]:
    """The GPU that the query names, or those whose name contains it."""
    try:
        return find_gpu(query, extra), []
    except InputError:
        part = squash(query)
        partial = [gpu for gpu in gpus if part and any(part in squash(name) for name in (gpu.name, gpu.short, gpu.id))]
        if not partial:
            raise
        return None, partial


def table(gpus: list[Gpu]) -> str:
    """Aligned columns, at most 80 wide."""
    rows = [_HEADER, *(_row(gpu) for gpu in gpus)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    lines = []
    for row in rows:
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _row(gpu: Gpu) -> tuple[str, ...]:
    usable = "RAM" if gpu.usable_bytes is None else format_gib(gpu.usable_bytes) + _BASIS_MARKS[gpu.usable_basis]
    link = gpu.link.bytes_per_s if gpu.link else None
    rent = min((price.usd_per_hour for price in gpu.prices), default=None)
    return (
        gpu.short,
        usable,
        _number(gpu.bandwidth_bytes_per_s, 1e9),
        _number(gpu.peak_flops.get("float16"), 1e12),
        _number(gpu.peak_flops.get("bfloat16"), 1e12),
        _number(link, 1e9),
        _number(gpu.node_size, 1),
        "-" if rent is None else f"{rent:.2f}",
    )


def _number(value: float | None, unit: float) -> str:
    return "-" if value is None else f"{value / unit:.6g}"


def detail(gpu: Gpu) -> str:
    """Every fact of one GPU with its source, and the rents on record."""
    lines = [f"{gpu.name}  ({gpu.short})", ""]
    for name, fact in gpu.facts.items():
        value = fact.value
        if name == "usable_bytes" and isinstance(value, int):
            value = f"{value} ({format_gib(value, 2)} GiB, {gpu.usable_basis})"
        lines.append(f"{name}: {value}")
        lines += _wrapped(f"{fact.kind}: {fact.source}")
        if fact.note:
            lines += _wrapped(f"note: {fact.note}")
    if not gpu.is_cpu:
        bf16 = "native" if gpu.supports_bf16 else "not native"
        lines.append(f"bfloat16 is {bf16}; context {gpu.context.low // MIB}-{gpu.context.high // MIB} MiB")
    for price in gpu.prices:
        lines.append(f"${price.usd_per_hour:.2f} per hour: {price.provider}, {price.date}")
        lines += _wrapped(price.source)
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent="    ",
        subsequent_indent="      ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def gpu_document(gpu: Gpu) -> dict[str, object]:
    """Plain JSON values of one GPU."""
    return {
        "id": gpu.id,
        "name": gpu.name,
        "short": gpu.short,
        "vendor": gpu.vendor,
        "architecture": gpu.architecture,
        "form_factor": gpu.form_factor,
        "marketed_bytes": gpu.marketed_bytes,
        "usable_bytes": gpu.usable_bytes,
        "usable_basis": gpu.usable_basis,
        "supports_bf16": gpu.supports_bf16,
        "facts": {
            name: {"value": fact.value, "source": fact.source, "kind": fact.kind, "note": fact.note}
            for name, fact in gpu.facts.items()
        },
        "prices": [
            {
                "usd_per_hour": price.usd_per_hour,
                "provider": price.provider,
                "date": price.date,
                "source": price.source,
            }
            for price in gpu.prices
        ],
    }
