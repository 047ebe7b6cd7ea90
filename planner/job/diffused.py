"""`plan FOLDER` of a model of diffusers: its training loop, prepared for the search as any script."""

from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.job.prepared import Openers, Prepared
from gpu_plan.planner.job.training import prepare as prepare_training
from gpu_plan.planner.model.source.resolve import ModelSource, resolve
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.options.task import is_inference
from gpu_plan.planner.options.values import choice, positive
from gpu_plan.planner.plan.document import Assumption
from gpu_plan.planner.search.shown.sections import Details
from gpu_plan.planner.search.training.task import TrainingTask
from gpu_plan.planner.workload.adapters import NO_ADAPTERS, Peft
from gpu_plan.planner.workload.precisions import Precision, default_precision
from gpu_plan.planner.workload.training import Checkpointing

_TOLD = ("peft", "lora-rank", "checkpointing", "grad-accum")
"""What the loop is told, and nobody else."""
_NOT = (
    "recipe",
    "server",
    "seq-len",
    "attention",
    "stack",
    "lora-targets",
    "fused-loss",
    "quantize",
    "context",
    "compile",
)
"""About language models, or about what a loop of diffusers does not have."""
_RANK = 4
"""examples/text_to_image/train_text_to_image_lora.py: --rank."""


@dataclass(frozen=True, slots=True)
class LoopTask(TrainingTask):
    """A training task whose data are made up: it gives no command."""

    def details(self, judgement: Any, *, lost: bool, best: bool) -> Details:
        """As of training, without the command."""
        # A class with slots is made anew: `super()` without arguments would still mean the first one.
        return replace(TrainingTask.details(self, judgement, lost=lost, best=best), command=None)


def prepare(request: Request, cluster: Cluster, source: ModelSource, note: Note, openers: Openers) -> Prepared:
    """The loop that trains the model. UsageError for what makes no sense of it."""
    words = dict(request.words)
    strange = next((name for name in _NOT if name in words), None)
    if is_inference(words) or strange is not None:
        what = f"--{strange}" if strange is not None else "--task infer"
        raise UsageError(f"{what}: {source.id} is a model of diffusers, whose training alone is planned: leave it out")
    assert source.path is not None
    if source.path.name != "config.json":
        raise UsageError(f"diffusers loads folders, not {source.path.name}: rename it config.json and name its folder")
    script = Path(str(resources.files("gpu_plan.planner.capture.diffusion").joinpath("train.py")))
    captured = replace(resolve(str(script)), id=source.id, notes=source.notes)
    left = tuple((name, value) for name, value in request.words if name not in _TOLD)
    arguments = _arguments(words, source.path.parent, cluster)
    inner = replace(request, model=str(script), words=left, script_words=arguments)
    found = prepare_training(inner, cluster, captured, note, openers)
    evaluator: Any = found.task.evaluator
    return replace(found, task=LoopTask(evaluator), fixed=(*_FIXED, *found.fixed))


_FIXED = (
    Assumption(
        text="the loop of diffusers' own scripts: noise is predicted, its mean squared error in fp32, AdamW; text"
        " encoders and VAE are left out, as where their outputs are stored before",
        basis="assumed",
    ),
    Assumption(
        text="pictures of the size that the configuration names, 1,024 pixels where it names none", basis="assumed"
    ),
)


def _arguments(words: dict[str, str], folder: Path, cluster: Cluster) -> tuple[str, ...]:
    asked = choice(Precision, words.get("precision"), "--precision")
    precision = asked or default_precision(cluster.gpu.supports_bf16)
    if precision.is_float8 or not (precision.is_mixed or precision.traits.launcher == "no"):
        raise UsageError(f"--precision {precision}: a loop of diffusers trains fp32 weights, mixed or not")
    peft = words.get("peft", NO_ADAPTERS).lower()
    if peft not in Peft.names() or Peft(peft).quantises:
        raise UsageError(f"--peft {words['peft']}: a model of diffusers takes lora or none")
    found = ["--model", str(folder.resolve()), "--mixed", precision.traits.launcher]
    found += ["--batch", str(positive(words.get("micro-batch"), "--micro-batch") or 1)]
    found += ["--accumulation", str(positive(words.get("grad-accum"), "--grad-accum") or 1)]
    checkpointing = choice(Checkpointing, words.get("checkpointing"), "--checkpointing")
    found += ["--checkpointing"] if checkpointing not in (None, Checkpointing.NONE) else []
    if Peft(peft).adapts:
        rank = positive(words.get("lora-rank"), "--lora-rank") or _RANK
        found += ["--lora-rank", str(rank), "--weights", precision.compute_dtype]
    elif "lora-rank" in words:
        raise UsageError("--lora-rank is about adapters: add --peft lora")
    return tuple(found)
