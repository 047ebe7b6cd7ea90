"""`plan MODEL --recipe R`: the recipe's own script, which runs TRL's trainer, prepared for the search as any script."""

import importlib.util
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.job.prepared import Openers, Prepared
from gpu_plan.planner.job.recipe.figures import RecipeTask
from gpu_plan.planner.job.training import prepare as prepare_training
from gpu_plan.planner.model.source.resolve import ModelSource, resolve
from gpu_plan.planner.options.recipe.read import RecipeGiven, read_recipe
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.options.values import choice
from gpu_plan.planner.plan.document import Assumption
from gpu_plan.planner.search.training.notes.stack import stack_notes
from gpu_plan.planner.workload.precisions import Precision, default_precision


def prepare(request: Request, cluster: Cluster, source: ModelSource, note: Note, openers: Openers) -> Prepared:
    """The job that the recipe describes. UsageError for what makes no sense."""
    words = dict(request.words)
    given = read_recipe(words, request.settings)
    _check_models(given, source)
    precision = choice(Precision, words.get("precision"), "--precision") or default_precision(cluster.gpu.supports_bf16)
    script = Path(str(resources.files("gpu_plan.planner.capture.recipes").joinpath(f"{given.recipe.name}.py")))
    inner = replace(
        request,
        model=str(script),
        words=given.words,
        script_words=_arguments(given, source, precision),
    )
    captured = replace(resolve(str(script)), id=f"--recipe {given.recipe.name}")
    found = prepare_training(inner, cluster, captured, note, openers)
    evaluator: Any = found.task.evaluator
    return replace(
        found,
        task=RecipeTask(evaluator, given=given, spec=found.spec),
        fixed=(*_fixed(given), *found.fixed),
        # What is known of the stack by itself is about SFTTrainer, on a model by name.
        settings=tuple(one for one in found.settings if one not in stack_notes(evaluator.workload)),
    )


def _check_models(given: RecipeGiven, source: ModelSource) -> None:
    """InputError for a model that TRL cannot be given, and for models of different vocabularies."""
    missing = [name for name in ("trl", "datasets") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"--recipe runs TRL's own trainers, and {missing[0]} is not installed: pip install trl")
    if source.config is None:
        raise UsageError(f"--recipe trains models of transformers: {source.id} is not one (name an id or a folder)")
    if given.teacher is None:
        return
    teacher = resolve(given.teacher, read_headers=False)
    if teacher.config is None:
        raise UsageError(f"--teacher {given.teacher} is no model of transformers: name an id or a folder")
    own, other = _vocabulary(source), _vocabulary(teacher)
    if own is not None and other is not None and own != other:
        raise InputError(
            f"--teacher {given.teacher} has {other:,} words and {source.id} {own:,}: distillation compares them one by"
            " one; name a teacher of the same vocabulary"
        )


def _vocabulary(source: ModelSource) -> int | None:
    config = source.config or {}
    text = config.get("text_config")
    for part in (config, text if isinstance(text, dict) else {}):
        if isinstance(part.get("vocab_size"), int):
            return int(part["vocab_size"])
    return None


def _named(source: ModelSource) -> str:
    """How a script names the model: its id, or its folder."""
    if source.kind not in ("folder", "config"):
        return source.id
    assert source.path is not None
    if source.path.name != "config.json":
        raise UsageError(f"--recipe: TRL loads folders, not {source.path.name}: rename it config.json, or name an id")
    return str(source.path.parent.resolve())


def _arguments(given: RecipeGiven, source: ModelSource, precision: Precision) -> tuple[str, ...]:
    words = ["--model", _named(source), "--prompt-len", str(given.prompt_len)]
    words += ["--completion-len", str(given.completion_len), "--batch", str(given.micro_batch)]
    words += ["--accumulation", str(given.grad_accum)]
    words += ["--compute", precision.compute_dtype, "--weights", precision.traits.weights]
    if given.reference == "precomputed":
        words.append("--precompute")
    if given.teacher is not None:
        words += ["--teacher", _named(resolve(given.teacher, read_headers=False))]
    if given.lora_rank is not None:
        words += ["--lora-rank", str(given.lora_rank)]
        words += ["--lora-targets", given.lora_targets] if given.lora_targets else []
    return tuple(words)


def _fixed(given: RecipeGiven) -> tuple[Assumption, ...]:
    recipe = given.recipe
    texts = [
        (
            f"{recipe.trainer} of the installed TRL runs to its first optimizer step, on made-up prompts of"
            f" {given.prompt_len} and completions of {given.completion_len} tokens, all equally long",
            "traced",
        )
    ]
    if given.reference == "precomputed":
        texts.append(("the reference is asked before the first step, which is not counted", "source"))
    if given.lora_rank is not None:
        texts.append(("the frozen base is loaded in the type of the computation", "assumed"))
    if given.reference == "adapters":
        texts.append(("the reference is the policy with its adapters switched off: no second model stands", "source"))
    return tuple(Assumption(text=text, basis=basis) for text, basis in texts)  # type: ignore[arg-type]
