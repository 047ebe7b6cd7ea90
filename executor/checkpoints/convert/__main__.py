"""Converts one checkpoint, in a process of its own: torch and DeepSpeed are imported here (I/O)."""

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from gpu_plan.executor.checkpoints.find import open_checkpoint
from gpu_plan.executor.checkpoints.manifest import (
    DCP,
    DEEPSPEED_UNIVERSAL,
    LAYOUTS,
    REPLICATED,
    Manifest,
    list_files,
    write_manifest,
)
from gpu_plan.planner.errors import InputError, PlanError


def main() -> int:
    """Exit code 0, or 1 with one line on stderr; a target that is not complete is not left behind."""
    parser = argparse.ArgumentParser(prog="python -m gpu_plan.executor.checkpoints.convert", description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--layout", choices=LAYOUTS, required=True)
    parser.add_argument("--strategy", required=True)
    parser.add_argument("--world-size", type=int, required=True)
    args = parser.parse_args()
    try:
        convert(args.source, args.target, layout=args.layout, strategy=args.strategy, world_size=args.world_size)
    except PlanError as error:
        print(error, file=sys.stderr)
        return 1
    except Exception as error:
        print(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}", file=sys.stderr)
        return 1
    return 0


def convert(source: Path, target: Path, *, layout: str, strategy: str, world_size: int) -> None:
    """Writes `target`, a complete checkpoint of `layout`, from `source`, which stays as it is.

    Raises a PlanError for what cannot be, and what torch and DeepSpeed raise.
    """
    checkpoint = open_checkpoint(source)
    if target.exists():
        raise InputError(f"{target} is there already: name another folder")
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        names = _converter(checkpoint.manifest, layout)(checkpoint.path, partial, checkpoint.manifest, strategy)
        made = replace(
            checkpoint.manifest,
            layout=layout,
            strategy=strategy,
            world_size=world_size,
            schedule_pace=checkpoint.manifest.pace,
            random_states=checkpoint.manifest.random_states and world_size <= checkpoint.manifest.world_size,
            parameter_names=names,
            created=time.time(),
            converted_from=str(checkpoint.path),
            files=list_files(partial, flush=True),
        )
        write_manifest(partial, made)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


Converter = Callable[[Path, Path, Manifest, str], tuple[str, ...]]
"""Fills the target; gives the parameters' names in the order in which an optimizer numbers them, where it is known."""


def _converter(manifest: Manifest, layout: str) -> Converter:
    if layout == DEEPSPEED_UNIVERSAL:
        from gpu_plan.executor.checkpoints.convert.universal import to_universal

        return to_universal
    from gpu_plan.executor.checkpoints.convert.torch_layouts import dcp_to_replicated, replicated_to_dcp

    known: Mapping[tuple[str, str], Converter] = {
        (REPLICATED, DCP): replicated_to_dcp,
        (DCP, REPLICATED): dcp_to_replicated,
    }
    found = known.get((manifest.layout, layout))
    if found is None:
        raise InputError(f"no converter makes {layout} of {manifest.layout}")
    return found


if __name__ == "__main__":
    sys.exit(main())
