"""A whole run of prompts on one rank: load, go through what is left, keep what is done."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpu_plan.executor.inference.job import DISK, InferenceJob, Place
from gpu_plan.executor.inference.loading.checkpoint import Checkpoint
from gpu_plan.executor.inference.loading.load import load
from gpu_plan.executor.inference.loading.model import bytes_by_place, empty_model
from gpu_plan.executor.inference.loading.room import offload_folder
from gpu_plan.executor.inference.prompting.decode import Batch, Item, run_batch
from gpu_plan.executor.inference.prompting.figures import Figures, device_name
from gpu_plan.executor.inference.prompting.measure import Meter
from gpu_plan.executor.inference.prompting.progress import Journal, Progress, Result
from gpu_plan.executor.inference.prompting.prompts import Prompts
from gpu_plan.executor.inference.prompting.ranks import Ranks, share
from gpu_plan.executor.inference.prompting.sampling import Sampling
from gpu_plan.executor.inference.prompting.tokens import Tokens
from gpu_plan.planner.errors import PreflightError


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Everything that one rank needs to run its share."""

    job: InferenceJob
    checkpoint: Checkpoint
    prompts: Prompts
    tokens: Tokens
    progress: Progress
    new_tokens: int
    sampling: Sampling
    offload: Path
    """Parent of the folders for what goes to disk."""
    ranks: Ranks

    def run(self) -> int:
        """Runs what is left of this rank's share; gives the number of prompts done here.

        Every rank has read the progress before any adds to it. Errors as `load` and `Journal` raise them.
        """
        done = self.progress.read()
        left = [item for item in self.tokens.items if item.index not in done]
        mine = share(left, self.ranks)
        self.ranks.meet()
        with ExitStack() as stack:
            journal = self._journal(stack)
            figures = self._run(stack, mine, len(done), journal)
        self.progress.finish()
        return figures.done

    def _journal(self, stack: ExitStack) -> Journal | None:
        """Of the ranks that make one replica, one writes."""
        if not self.ranks.writes:
            return None
        journal = Journal(self.progress, self.ranks.replica)
        stack.callback(journal.close)
        return journal

    def _run(self, stack: ExitStack, mine: Sequence[Item], before: int, journal: Journal | None) -> Figures:
        import torch

        job = on_rank(self.job, self.ranks)
        folder = stack.enter_context(offload_folder(self.offload, self.ranks.rank, job.places))
        meta = empty_model(self.checkpoint, job)  # what it imports is no part of the load
        names = tuple(dict.fromkeys(device_name(place) for place in job.places.values() if place != DISK))
        meter = Meter(torch, names)
        figures = Figures(
            job=job,
            prompts=len(self.prompts.items),
            done_before=before,
            output=self.progress.output,
            base_resident=meter.base_resident,
        )
        figures.resumed(-(-before // (job.batch * job.replicas)))
        if not mine:
            return figures
        loaded = load(job, self.checkpoint, folder)
        weights, parameters = _weights(job, loaded.model, meta)
        figures.loaded(loaded.way, meter.cut(), weights, parameters)
        for items in batches(mine, job.batch):
            batch = run_batch(
                loaded,
                items,
                new_tokens=self.new_tokens,
                ends=self.tokens.ends,
                sampling=self.sampling,
                meter=meter,
                cache_kind=job.cache,
                chunk=job.chunk,
            )
            if journal is not None:
                journal.append([self._result(item, out) for item, out in zip(items, batch.outputs, strict=True)])
            figures.batch(batch)
            _told(batch, figures)
        return figures

    def _result(self, item: Item, output: tuple[int, ...]) -> Result:
        prompt = self.prompts.items[item.index]
        found: dict[str, object] = {"index": item.index}
        if prompt.id is not None:
            found["id"] = prompt.id
        text = self.tokens.text(output)
        if text is not None:
            found["text"] = text
        ended = bool(output) and output[-1] in self.tokens.ends.stop
        return {
            **found,
            "output_ids": list(output),
            "prompt_tokens": len(item.tokens),
            "finish": "stop" if ended else "length",
        }


def batches(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """Runs of at most `size`, in order."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def on_rank(job: InferenceJob, ranks: Ranks) -> InferenceJob:
    """The job as one rank has it: a replica's device 0 is the GPU of its own."""
    if job.on_cpu or job.layout == "single":
        return job
    places = job.places
    if any(isinstance(place, int) and place != 0 for place in places.values()) and job.layout == "replicas":
        raise PreflightError(
            "replicas over several GPUs cannot be run: plan one GPU for each replica, or tensor parallel"
        )
    own = {name: ranks.local_rank if isinstance(place, int) else place for name, place in places.items()}
    return replace(job, device_map=own)


def identity(checkpoint: Checkpoint, prompts: Prompts, new_tokens: int, sampling: Sampling) -> Mapping[str, object]:
    """What must be equal for results of two runs to stand in one output."""
    return {
        "model": checkpoint.digest,
        "prompts": prompts.digest,
        "new tokens": new_tokens,
        "sampling": [sampling.temperature, sampling.top_k, sampling.top_p, sampling.seed],
    }


def _weights(job: InferenceJob, model: Any, meta: Any) -> tuple[dict[Place, int], int | None]:
    """Bytes of weights by place, of this rank's part; and the whole model's parameters where this rank has all."""
    if job.layout in ("tensor", "pipeline"):
        return {next(iter(job.places.values())): sum(_local(parameter) for parameter in model.parameters())}, None
    return bytes_by_place(meta, job.places), sum(parameter.numel() for parameter in meta.parameters())


def _local(parameter: Any) -> int:
    tensor = parameter.to_local() if hasattr(parameter, "to_local") else parameter
    return int(tensor.numel() * tensor.element_size())


def _told(batch: Batch, figures: Figures) -> None:
    seconds = batch.prefill.seconds + (batch.decode.seconds if batch.decode_steps else 0.0)
    made = sum(len(output) for output in batch.outputs)
    print(
        f"{figures.done_before + figures.done} prompts done, {made / seconds:.1f} tokens/s in the last batch",
        flush=True,
    )
