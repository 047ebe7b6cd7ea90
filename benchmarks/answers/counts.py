"""What a plan takes, as counts that no machine changes: how far a first answer has come, and whether it went back.

    .venv/bin/python -m benchmarks.answers.counts

For each of a few jobs: steps recorded and operators in them (nothing where the trace is shipped), ranks laid out and
events in them, candidates judged by their tensors, allocator runs and events in those. `tests/trace/test_counts.py`
holds the first against the file. Writes benchmarks/results/counts.json and .md.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from benchmarks.places import RESULTS
from gpu_plan.planner.job.run import run_job
from gpu_plan.planner.memory.allocator import compiled, replay
from gpu_plan.planner.memory.stream import builder
from gpu_plan.planner.options.request import Request
from gpu_plan.planner.search.aside.allowed import CORES
from gpu_plan.planner.search.training.evaluate import Evaluator

JOBS: dict[str, tuple[str, str, tuple[tuple[str, str], ...]]] = {
    "one strategy of an 8B": ("meta-llama/Llama-3.1-8B", "8xH100", (("strategy", "fsdp"),)),
    "a whole search of an 8B": ("meta-llama/Llama-3.1-8B", "8xH100", ()),
    "of a 70B on 128 GPUs": ("meta-llama/Llama-3.1-70B", "16x8xH100", ()),
    "of a 20B of experts": ("openai/gpt-oss-20b", "8xH200", ()),
    "of a model that is traced": ("EleutherAI/pythia-70m", "2xT4", (("seq-len", "256"),)),
}
KINDS = (
    "steps recorded",
    "operators recorded",
    "ranks laid out",
    "events laid out",
    "candidates judged",
    "allocator runs",
    "allocator events",
)


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Counts while it is open."""
    found: Counter[str] = Counter(dict.fromkeys(KINDS, 0))

    def counted(place: Any, name: str, count: Callable[[Any, tuple[Any, ...]], None]) -> Any:
        real = getattr(place, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            made = real(*args, **kwargs)
            count(made, args)
            return made

        return patch.object(place, name, call)

    def laid_out(made: Any, args: tuple[Any, ...]) -> None:
        found.update({"ranks laid out": 1, "events laid out": len(made.event_sign)})

    def judged(made: Any, args: tuple[Any, ...]) -> None:
        found["candidates judged"] += 1

    def replayed(made: Any, args: tuple[Any, ...]) -> None:
        found.update({"allocator runs": 1, "allocator events": args[0].num_events})

    def recorded(made: Any, args: tuple[Any, ...]) -> None:
        found.update({"steps recorded": 1, "operators recorded": len(made.raw.operators)})

    with ExitStack() as open_:
        open_.enter_context(patch.dict(os.environ, {CORES: "1"}))  # what other processes do is not counted here
        open_.enter_context(counted(builder, "assembled", laid_out))
        open_.enter_context(counted(Evaluator, "_judge", judged))
        open_.enter_context(counted(replay.Run, "_played", replayed))
        open_.enter_context(counted(compiled.CompiledRun, "taken", replayed))
        if "torch" in sys.modules or _traces():
            from gpu_plan.planner.trace.tracer import Tracer

            open_.enter_context(counted(Tracer, "_record", recorded))
        yield found


def _traces() -> bool:
    """Whether what traces is installed: imported at once, so that its recordings are counted."""
    from importlib.util import find_spec

    return find_spec("torch") is not None and find_spec("transformers") is not None


def count(job: str) -> dict[str, int]:
    """One job, without the cache."""
    model, gpus, words = JOBS[job]
    request = Request(
        model=model,
        gpus=gpus,
        words=words,
        settings=(),
        pinned=False,
        explain=False,
        trust_remote_code=False,
        revision=None,
        use_cache=False,
        command="",
    )
    with counting() as found:
        run_job(request, lambda _: None)
    return {kind: found[kind] for kind in KINDS}


def markdown(found: dict[str, dict[str, int]]) -> str:
    """The page."""
    rows = [f"| {job} | {' | '.join(f'{counts[kind]:,}' for kind in KINDS)} |" for job, counts in found.items()]
    jobs = [
        f"- {job}: `{model}` on `{gpus}`" + "".join(f" `--{name} {value}`" for name, value in words)
        for job, (model, gpus, words) in JOBS.items()
    ]
    return "\n".join(
        [
            "# What a plan takes, as counts\n",
            "Written by `python -m benchmarks.answers.counts`; a test holds the first line.\n",
            f"| job | {' | '.join(KINDS)} |",
            "|---" * (len(KINDS) + 1) + "|",
            *rows,
            "",
            *jobs,
            "",
        ]
    )


def main() -> int:
    """Writes both result files, and names what became more."""
    path = RESULTS / "counts.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    found = {job: count(job) for job in JOBS}
    more = [
        f"{job}: {kind} {before[job][kind]:,} -> {counts[kind]:,}"
        for job, counts in found.items()
        for kind in KINDS
        if counts[kind] > before.get(job, counts)[kind]
    ]
    path.write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "counts.md").write_text(markdown(found))
    print(markdown(found))
    print("\n".join(more) or "nothing became more")
    return 1 if more else 0


if __name__ == "__main__":
    sys.exit(main())
