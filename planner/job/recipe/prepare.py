"""`plan MODEL --recipe R`: the recipe's own script, which runs TRL's trainer, prepared for the search as any script."""

import importlib.util
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from gpu_plan.planner.capture.job import OpenCaptures, capture_request
from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.job.prepared import Openers, Prepared
from gpu_plan.planner.job.recipe.engine import SLEEPS, Engines, engines
from gpu_plan.planner.job.recipe.figures import RecipeTask
from gpu_plan.planner.job.recipe.provider import RecipeProvider
from gpu_plan.planner.job.recipe.spread import (
    batch_words,
    engine_for,
    server_copies,
    server_ranks,
    training_part,
)
from gpu_plan.planner.job.rollouts import rolling
from gpu_plan.planner.job.training import prepare as prepare_training
from gpu_plan.planner.model.config_reader import positions_of, vocabulary_of
from gpu_plan.planner.model.kernels.liger import VERSION as LIGER_VERSION
from gpu_plan.planner.model.kernels.liger import check_liger
from gpu_plan.planner.model.source.resolve import ModelSource, resolve
from gpu_plan.planner.options.recipe.read import SCRIPT_SETTINGS, RecipeGiven, read_recipe
from gpu_plan.planner.options.request import Note, Request
from gpu_plan.planner.options.values import choice
from gpu_plan.planner.plan.document import Assumption
from gpu_plan.planner.search.training.notes.stack import stack_notes
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.workload.precisions import Precision, default_precision
from gpu_plan.planner.workload.recipes import LIGER

_BETA = 0.04
"""Any weight of the reference: what it takes of memory does not depend on it."""


def prepare(request: Request, cluster: Cluster, source: ModelSource, note: Note, openers: Openers) -> Prepared:
    """The job that the recipe describes. UsageError for what makes no sense."""
    words = dict(request.words)
    given = read_recipe(words, request.settings)
    if request.pinned and given.engine is not None:
        given = replace(given, engine=replace(given.engine, may_sleep=False))
    _check_models(given, source)
    _check_degrees(given, words)
    _check_kernels(given, source, cluster)
    precision = choice(Precision, words.get("precision"), "--precision") or default_precision(cluster.gpu.supports_bf16)
    script = Path(str(resources.files("gpu_plan.planner.capture.recipes").joinpath(f"{given.recipe.name}.py")))
    captured = replace(resolve(str(script)), id=f"--recipe {given.recipe.name}")
    beside = None
    if given.engine is not None:
        lengths = given.prompt_len, given.completion_len
        beside = engines(given.engine, lengths, request, cluster, source, note)
        _check_room(given, cluster, beside)

    opened = _opener(given, source)
    arguments = _arguments(given, source, precision) + (("--cpu",) if cluster.gpu.is_cpu else ())

    def trained(trains: Cluster) -> Prepared:
        words = dict(given.words)
        rolls = given.recipe.rolls_out
        left = batch_words(given, words, trains.world_size, pinned=request.pinned) if rolls else given.words
        settings = tuple(one for one in request.settings if one.partition("=")[0] not in SCRIPT_SETTINGS)
        inner = replace(request, model=str(script), words=left, settings=settings, script_words=arguments)
        return prepare_training(inner, trains, captured, note, replace(openers, captures=openers.captures or opened))

    taken = 0 if beside is None else _taken(given, cluster, beside, trained, pinned=request.pinned)
    found = trained(training_part(cluster, taken) if taken else cluster)
    evaluator: Any = found.task.evaluator
    if given.recipe.rolls_out:
        engine = None if beside is None else engine_for(given, cluster, beside, taken)
        asleep = None
        if beside is not None and given.engine is not None and given.engine.may_sleep:
            slept = replace(given.engine, sleeps=True)
            asleep = engine_for(replace(given, engine=slept), cluster, replace(beside, given=slept), taken)
        evaluator = rolling(evaluator, evaluator.provider.passages, given.roles, engine, asleep)
    return replace(
        found,
        task=RecipeTask(evaluator, given=given, spec=found.spec),
        fixed=(*_fixed(given), *found.fixed),
        warnings=lambda plans: (*_too_long(given, source), *found.warnings(plans)),
        # What is known of the stack by itself is about SFTTrainer, on a model by name.
        settings=tuple(one for one in found.settings if one not in stack_notes(evaluator.workload)),
    )


def _taken(
    given: RecipeGiven, cluster: Cluster, beside: Engines, trained: Callable[[Cluster], Prepared], *, pinned: bool
) -> int:
    """Devices that a server takes; 0 where vLLM lies on those that train."""
    asked = given.engine
    assert asked is not None
    if asked.mode != "server":
        return 0
    ranks = server_ranks(asked, cluster, beside)

    def seconds(copies: int) -> float | None:
        """Of one completion: what its rollout takes at least, and an update of the first plan that has room."""
        task: Any = trained(training_part(cluster, copies * ranks)).task
        engine = beside.on(copies * ranks, ranks, None)
        for family in task.families():
            judged = task.evaluator.judge_uncounted(family, task.cuts_of(family)[0])
            if judged.verdict != "no":
                batch = judged.batch
                completions = batch.micro_batch * batch.accumulation_steps * task.evaluator.cluster.world_size
                return float((engine.rollout_seconds(completions) + judged.time.step_seconds) / completions)
        return None

    return ranks * server_copies(cluster, ranks, seconds, pinned=pinned)


def _opener(given: RecipeGiven, source: ModelSource) -> OpenCaptures:
    """What runs the recipe's script; its models are known before it asks for them."""
    names = [name for name in (given.teacher, given.reward_model) if name is not None]
    sources = (source, *(resolve(name, read_headers=False) for name in names))
    configs = {one.id: json.dumps(one.config) for one in sources if one.kind not in ("folder", "config")}

    def opened(request: Request, cluster: Cluster, script: Path, note: Note) -> RecipeProvider:
        return RecipeProvider(
            request=capture_request(request, cluster, script),
            device=device_kind(cluster.gpu),
            use_cache=request.use_cache,
            note=note,
            configs=configs,
            runs=f"TRL's {given.recipe.trainer} on {source.id}",
            model=source.id,
        )

    return opened


def _check_models(given: RecipeGiven, source: ModelSource) -> None:
    """InputError for a model that TRL cannot be given, and for models of different vocabularies."""
    missing = [name for name in ("trl", "datasets") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"--recipe runs TRL's own trainers, and {missing[0]} is not installed: pip install trl")
    if source.config is None:
        raise UsageError(f"--recipe trains models of transformers: {source.id} is not one (name an id or a folder)")
    _check_decoder(given, source)
    if given.reward_model is not None and resolve(given.reward_model, read_headers=False).config is None:
        raise UsageError(f"--reward-model {given.reward_model} is no model of transformers: name an id or a folder")
    if given.reward_model is not None and vocabulary_of(resolve(given.reward_model, read_headers=False).config) is None:
        raise UsageError(f"--reward-model {given.reward_model} reads no text: its configuration has no vocabulary")
    if given.teacher is None:
        return
    teacher = resolve(given.teacher, read_headers=False)
    if teacher.config is None:
        raise UsageError(f"--teacher {given.teacher} is no model of transformers: name an id or a folder")
    own, other = vocabulary_of(source.config), vocabulary_of(teacher.config)
    if own is not None and other is not None and own != other:
        raise InputError(
            f"--teacher {given.teacher} has {other:,} words and {source.id} {own:,}: distillation compares them one by"
            " one; name a teacher of the same vocabulary"
        )


def _check_degrees(given: RecipeGiven, words: Mapping[str, str]) -> None:
    """UsageError for ranks that compute together what has no plan: only one model, without adapters, is spread so."""
    asked = next((f"--{name}" for name in ("tp", "cp", "ep") if words.get(name, "1") not in ("1", "auto")), None)
    if asked is None or (len(given.roles) == 1 and given.lora_rank is None):
        return
    what = "adapters" if len(given.roles) == 1 else " and ".join(given.roles)
    raise UsageError(
        f"{asked}: --recipe {given.recipe.name} trains {what}, and only one model, without adapters, is computed by"
        f" several ranks together: leave {asked} out"
    )


def _check_kernels(given: RecipeGiven, source: ModelSource, cluster: Cluster) -> None:
    """UsageError where Liger's kernels do not cover the model, or there is no GPU for them."""
    if not given.liger:
        return
    if cluster.gpu.is_cpu:
        raise UsageError(f"--set {LIGER} is of Triton kernels: they need a GPU")
    config = source.config or {}
    names = config.get("architectures")
    name = str(names[0]) if isinstance(names, list) and names else "ForCausalLM"
    check_liger(("layers",), str(config.get("model_type") or ""), name)


def _check_room(given: RecipeGiven, cluster: Cluster, beside: Engines) -> None:
    """UsageError where an engine's share holds no request: before anything is captured."""
    assert given.engine is not None
    if given.engine.mode == "server":
        server_ranks(given.engine, cluster, beside)
    else:
        engine_for(given, cluster, beside, 0)


def _too_long(given: RecipeGiven, source: ModelSource) -> tuple[str, ...]:
    """A warning for samples beyond the model's positions, as of `--seq-len` elsewhere."""
    positions, length = positions_of(source.config), given.prompt_len + given.completion_len
    if positions is None or length <= positions:
        return ()
    return (f"prompt and completion of {length} tokens are longer than the {positions} positions of {source.id}",)


_PACKED = "mxfp4"
"""What gpt-oss is stored in, and transformers trains not."""
_DECODERS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
"""How classes end that predict the next token."""


def _check_decoder(given: RecipeGiven, source: ModelSource) -> None:
    """UsageError for a model that TRL's trainers cannot train: all but that of rewards ask a decoder."""
    config = source.config or {}
    names = config.get("architectures")
    name = str(names[0]) if isinstance(names, list) and names else ""
    wrong = "has an encoder of its own" if config.get("is_encoder_decoder") is True else None
    if name and not name.endswith(_DECODERS) and given.recipe.adapts == "CAUSAL_LM":
        wrong = f"is {name}, which predicts no next token"
    if wrong is not None:
        raise UsageError(f"--recipe {given.recipe.name} trains a decoder, and {source.id} {wrong}: name another model")


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
    # Steps of an accumulation are alike: one is enough where the search tells the trainer how many there are.
    words += ["--accumulation", "1" if given.recipe.rolls_out else str(given.grad_accum)]
    words += ["--compute", precision.compute_dtype, "--weights", precision.traits.weights]
    if given.reference == "precomputed":
        words.append("--precompute")
    words += ["--attention", given.attention] if given.attention else []
    words += ["--four-bits"] if given.four_bits else []
    words += ["--liger"] if given.liger else []
    words += ["--reentrant"] if given.reentrant else []
    words += ["--whole-logits"] if given.whole_logits else []
    stored = (source.config or {}).get("quantization_config")
    packed = isinstance(stored, Mapping) and stored.get("quant_method") == _PACKED
    words += ["--dequantize"] if packed and not given.four_bits else []
    if given.recipe.rolls_out:
        words += ["--generations", str(given.generations), "--beta", "0" if given.reference == "none" else str(_BETA)]
        words += ["--engine", given.engine.mode] if given.engine is not None else []
        if given.reward_model is not None:
            words += ["--reward-model", _named(resolve(given.reward_model, read_headers=False))]
    if given.teacher is not None:
        words += ["--teacher", _named(resolve(given.teacher, read_headers=False))]
    if given.lora_rank is not None:
        words += ["--lora-rank", str(given.lora_rank)]
        words += ["--lora-targets", given.lora_targets] if given.lora_targets else []
        words += ["--lora-dropout", f"{given.lora_dropout:g}"] if given.lora_dropout else []
        words += ["--double-quant"] if given.double_quant else []
    return tuple(words)


def _rollout_texts(given: RecipeGiven) -> list[tuple[str, str]]:
    engine = given.engine
    told = [
        ("seconds are those of the update: rollout, log-probabilities and rewards take longer", "assumed"),
        ("what a rollout leaves in the allocator's cache is used by the update, or given back", "assumed"),
    ]
    if given.reward_model is None:
        told.append(("rewards are computed on the host", "assumed"))
    if engine is None:
        return told
    told.append(
        (
            "vLLM does not run: TRL's own side is given completions of full length, with their log-probabilities; its"
            " memory is computed by its rules, for --max-model-len of prompt and completion together"
            " (vllm_max_model_length; left out, TRL lets it take all positions of the model)",
            "source",
        )
    )
    if engine.may_sleep:
        told.append((SLEEPS.text, SLEEPS.basis))
    if engine.sleeps or engine.may_sleep:
        told.append(("asleep (level 2) its weights and cache are gone; graphs and buffers stay", "source"))
    return told


def _fixed(given: RecipeGiven) -> tuple[Assumption, ...]:
    recipe = given.recipe
    texts = [
        (
            f"{recipe.trainer} of the installed TRL runs to its first optimizer step, on made-up prompts of"
            f" {given.prompt_len} and completions of {given.completion_len} tokens, all equally long",
            "traced",
        )
    ]
    texts += _rollout_texts(given) if recipe.rolls_out else []
    if given.liger:
        texts.append((f"Liger {LIGER_VERSION}'s layers in the trained model (TRL's use_liger_kernel)", "source"))
    if given.whole_logits:
        texts.append(("log-probabilities are of the completions' whole logits, as ms-swift 4.5 takes them", "source"))
    if given.reference == "precomputed":
        texts.append(("the reference is asked before the first step, which is not counted", "source"))
    if given.lora_rank is not None:
        constants = "packed again" if given.double_quant else "in fp32"
        packed = f"in NF4, its constants {constants}" if given.four_bits else "in the type of the computation"
        texts.append((f"the frozen base is loaded {packed}", "assumed"))
    if given.reference == "adapters":
        texts.append(("the reference is the policy with its adapters switched off: no second model stands", "source"))
    return tuple(Assumption(text=text, basis=basis) for text, basis in texts)  # type: ignore[arg-type]
