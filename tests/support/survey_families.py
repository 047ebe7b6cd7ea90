"""Run one shrunk model per model_type through forward, loss and backward on meta; print what works and host
reads.

python -m tests.support.survey_families [model_type ...] [--seq 64] [--batch 2]
"""

import argparse
import collections
import json
import time
import traceback
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.family import max_positions_of
from gpu_plan.planner.trace.inputs.batch import training_batch, training_loss
from gpu_plan.planner.trace.inputs.known import KnownValues, remember_literals
from gpu_plan.planner.trace.inputs.meta_ops import META_OPS
from gpu_plan.planner.trace.kernels.scans.replace import fused_scans
from tests.support.count_catalog import native_entries
from tests.support.shrink import shrink

aten = torch.ops.aten


class HostReads(TorchDispatchMode):
    """Answers host reads from known values, else with 0, and notes where they happen."""

    def __init__(self, known: KnownValues) -> None:
        super().__init__()
        self.known = known
        self.sites: collections.Counter[tuple[str, str, str]] = collections.Counter()
        self.ops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.ops += 1
        if func in META_OPS:
            return META_OPS[func](*args, **kwargs)
        answered, result = self.known.answer(func, args, kwargs)
        if answered:
            self._note(str(func), True)
            return result
        if func is aten._local_scalar_dense.default:
            self._note("item", False)
            return 0.0 if args[0].is_floating_point() else (False if args[0].dtype == torch.bool else 0)
        try:
            out = func(*args, **kwargs)
        except Exception:
            self._note(str(func), False)
            raise
        self.known.follow(func, args, kwargs, out)
        return out

    def _note(self, op: str, known: bool) -> None:
        for frame in reversed(traceback.extract_stack()[:-2]):
            if "/transformers/" in frame.filename or "site-packages" not in frame.filename:
                if "survey_families" in frame.filename or "inputs_known" in frame.filename:
                    continue
                where = frame.filename.split("/transformers/")[-1] + f":{frame.lineno}:{frame.name}"
                self.sites[(op, where, "known" if known else "UNKNOWN")] += 1
                return


def survey(name: str, config: dict[str, Any], batch: int, seq: int) -> dict[str, Any]:
    start = time.monotonic()
    result: dict[str, Any] = {"model_type": name}
    known = KnownValues()
    mode = HostReads(known)
    try:
        model = build_model(shrink(config))
        result["class"] = type(model).__name__
        inputs = training_batch(model, batch=batch, seq_len=min(seq, max_positions_of(model.config) or seq))
        for key, value in inputs.values.items():
            known.put(inputs.tensors[key], value)
        with fused_scans(model) as assumptions, mode, remember_literals(known):
            result["assumes"] = assumptions
            loss = training_loss(model, model(**inputs.tensors))
            result["forward_ops"] = mode.ops
            loss.backward()
        missing = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
        result.update(ok=True, loss=inputs.loss, ops=mode.ops, no_grad=[*missing[:3], len(missing)])
    except Exception as problem:
        frames = [f for f in traceback.extract_tb(problem.__traceback__) if "/transformers/" in f.filename]
        at = (
            f"{frames[-1].filename.split('/transformers/')[-1]}:{frames[-1].lineno}:{frames[-1].name}" if frames else ""
        )
        result.update(ok=False, error=f"{type(problem).__name__}: {str(problem)[:220]}", at=at)
    result["reads"] = {" ".join(k): v for k, v in mode.sites.items()}
    result["seconds"] = round(time.monotonic() - start, 2)
    return result


def smallest_per_class() -> list[tuple[str, dict[str, Any]]]:
    """(model_type, config) of the smallest catalog model of every pair of model type and class."""
    found: dict[tuple[str, str | None], dict[str, Any]] = {}
    for entry in native_entries():
        config = json.loads(entry.path.read_text())
        found.setdefault((config["model_type"], entry.built_as), config)
    return [(model_type, config) for (model_type, _), config in found.items()]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("types", nargs="*")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--seq", type=int, default=1024)
    options = parser.parse_args()
    for name, config in smallest_per_class():
        if not options.types or name in options.types:
            print(json.dumps(survey(name, config, options.batch, options.seq)), flush=True)


if __name__ == "__main__":
    main()
