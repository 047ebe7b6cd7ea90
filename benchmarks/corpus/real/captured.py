"""A capture in a fork of a process that has imported the libraries: the capturing child without its start."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_plan.planner.capture import child
from gpu_plan.planner.capture.request import CaptureRequest, Outcome, unframed
from gpu_plan.planner.plan.codec import decode, dump, load_object
from gpu_plan.planner.trace.storage import load
from tests.support.replay_cpu import replayed


def captured(request: CaptureRequest, folder: Path, roots: Sequence[Path]) -> dict[str, Any] | str:
    """The captured figures by the names of `tests.support.script_reference`, or why there are none."""
    outcome, content = _run(request, folder, roots)
    if outcome is None or outcome.facts is None or content is None:
        return "nothing said" if outcome is None else f"{outcome.file}:{outcome.line}: {outcome.message}"
    facts = outcome.facts
    figures = replayed(load(content), facts.micro_batch)
    return {
        "parameters": facts.spec["num_parameters"],
        "trainable": facts.spec["trainable_parameters"],
        "state_bytes": sum(made.state_bytes for made in facts.optimizers),
        "accumulation": facts.accumulation_steps,
        "inputs": {name: text[: text.index("]") + 1] for name, text in facts.batch.items()},
        "forward_end": figures.forward_end,
        "backward_end": figures.backward_end,
        "peak": figures.peak,
    }


def _run(request: CaptureRequest, folder: Path, roots: Sequence[Path]) -> tuple[Outcome | None, bytes | None]:
    asked, scratch = folder / "request.json", folder / "scratch"
    asked.write_text(dump(request), encoding="utf-8")
    scratch.mkdir()
    inward, outward = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(inward)
        log = os.open(folder / "capture.log", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.pop("ACCELERATE_USE_CPU", None)
        sys.path[:0] = map(str, roots)
        try:
            child.main([str(asked), str(outward), str(scratch)])
        finally:
            os._exit(1)
    os.close(outward)
    with os.fdopen(inward, "rb") as pipe:
        content = pipe.read()
    os.waitpid(process, 0)
    found = unframed(content)
    if found is None:
        return None, None
    return decode(Outcome, load_object(found[0], "the outcome"), "the outcome"), found[1]
