"""What a plan asks of a script's command line: each value with the option names under which scripts know it. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu_plan.executor.launch.target import Target
from gpu_plan.executor.script.option import ScriptOptions
from gpu_plan.executor.script.resume_words import RESUME_WORDS
from gpu_plan.planner.plan.saved import SavedPlan
from gpu_plan.planner.workload.optimizers.registry import DEFAULT_OPTIMIZER, optimizers
from gpu_plan.planner.workload.precisions import stored_precision


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptArgument:
    """One value that the script should run with."""

    what: str
    """In words, for people: `micro batch 4`."""
    words: tuple[str, ...]
    """Option names to look for, in this order; dashes as underscores."""
    value: str | bool
    """What the option is given; a bool switches."""
    field: str = ""
    """The field of CurrentPlan that says the same, where there is one."""
    needed: bool = False
    """Whether it is to be said when the script cannot be told."""
    others: tuple[str, ...] = ()
    """Other spellings of the same value, for an option whose choices lack it."""


_BATCH_WORDS = (
    "per_device_train_batch_size",
    "per_device_batch_size",
    "micro_batch_size",
    "micro_batch",
    "train_micro_batch_size_per_gpu",
    "batch_size_per_device",
    "train_batch_size",
    "batch_size",
    "batch",
)
_ACCUMULATION_WORDS = (
    "gradient_accumulation_steps",
    "grad_accumulation_steps",
    "grad_accum_steps",
    "grad_accum",
    "accumulation_steps",
    "accumulate_grad_batches",
    "gradient_accumulation",
)
_LENGTH_WORDS = (
    "max_seq_length", "max_seq_len", "seq_length", "seq_len", "sequence_length", "max_sequence_length", "block_size",
    "max_length", "context_length",
)  # fmt: skip
_CHECKPOINTING_WORDS = (
    "gradient_checkpointing",
    "activation_checkpointing",
    "use_gradient_checkpointing",
    "checkpointing",
)
_CLIPPING_WORDS = (
    "max_grad_norm", "max_gradient_norm", "clip_grad_norm", "gradient_clipping", "gradient_clip_val", "grad_clip",
    "clip_grad", "clip_norm", "grad_norm", "max_norm",
)  # fmt: skip

_ATTENTION: Mapping[str, str] = {"eager": "eager", "sdpa": "sdpa", "flash": "flash_attention_2"}


def script_arguments(target: Target, options: ScriptOptions, resume_from: Path | None) -> list[ScriptArgument]:
    """Everything that the script should be told, most important first."""
    saved = target.saved
    strategy, workload = saved.plan.strategy, saved.workload
    asked = [
        ScriptArgument(
            what=f"micro batch {strategy.loop_batch_size}",
            words=_BATCH_WORDS,
            value=str(target.loader_batch),
            field="micro_batch_size",
        ),
        ScriptArgument(
            what=f"{strategy.loop_steps} accumulation steps",
            words=_ACCUMULATION_WORDS,
            value=str(strategy.loop_steps),
            field="gradient_accumulation_steps",
        ),
    ]
    if saved.model.has_sequence and not _own(workload, "seq_len"):
        # A captured length is that of the batch that was seen: to ask for it would cut longer samples of the job.
        length = str(workload["seq_len"])
        asked.append(
            ScriptArgument(
                what=f"sequence length {length}",
                words=_LENGTH_WORDS,
                value=length,
                field="sequence_length",
            )
        )
    asked += _precision(strategy.precision, options, target.on_cpu and not target.needs_cpu_ranks)
    asked += _data_loader(target, options)
    asked += _checkpointing(saved, options)
    asked += _kernels(workload, options)
    asked += _clipping(target)
    asked += _evaluation(target)
    if resume_from is not None:
        asked.append(
            ScriptArgument(
                what=f"resume from {resume_from}",
                words=RESUME_WORDS,
                value=str(resume_from),
                field="resume_from",
                needed=True,
            )
        )
    return asked


def _precision(precision: str, options: ScriptOptions, use_cpu: bool) -> list[ScriptArgument]:
    mixed = stored_precision(precision).launcher
    if options.training_arguments is None:
        return [
            ScriptArgument(what=f"precision {precision}", words=("mixed_precision",), value=mixed, field="precision"),
            ScriptArgument(what="bf16", words=("bf16",), value=mixed == "bf16", field="precision"),
            ScriptArgument(what="fp16", words=("fp16",), value=mixed == "fp16", field="precision"),
        ]
    asked = [ScriptArgument(what="CPU ranks", words=("use_cpu",), value=True)] if use_cpu else []
    # fp8 reaches TrainingArguments through the launcher's environment, where neither flag is set.
    for name in ("bf16", "fp16"):
        if mixed == name or not options.training_arguments.endswith("TrainingArguments"):
            # TRL's configurations turn bf16 on by themselves.
            asked.append(ScriptArgument(what=f"{name} {mixed == name}".lower(), words=(name,), value=mixed == name))
    return asked


def _clipping(target: Target) -> list[ScriptArgument]:
    """Only where the user names a norm: a captured script has its own already."""
    norm = target.setting("clip.max_norm")
    if norm is None:
        return []
    return [ScriptArgument(what=f"clipping to {norm}", words=_CLIPPING_WORDS, value=norm, field="max_grad_norm")]


_EVALUATION = {
    "eval.batch": ("evaluation batch", ("per_device_eval_batch_size", "eval_batch_size")),
    "eval.accumulation_steps": ("eval_accumulation_steps", ("eval_accumulation_steps",)),
}


def _evaluation(target: Target) -> list[ScriptArgument]:
    """How large the batches of an evaluation are, where the plan has one."""
    given = ((what, words, target.setting(key)) for key, (what, words) in _EVALUATION.items())
    return [
        ScriptArgument(what=f"{what} {value}", words=words, value=value, needed=True)
        for what, words, value in given
        if value is not None
    ]


def _data_loader(target: Target, options: ScriptOptions) -> list[ScriptArgument]:
    """Under the Trainer its accelerator_config; elsewhere the runner gives them to the Accelerator."""
    wanted = {name: value for name, value in target.data_loader.items() if name != "split_batches"}
    if options.training_arguments is None or not wanted:
        return []
    what = ", ".join(f"{name} {str(value).lower()}" for name, value in wanted.items())
    return [ScriptArgument(what=what, words=("accelerator_config",), value=json.dumps(wanted), needed=True)]


def _checkpointing(saved: SavedPlan, options: ScriptOptions) -> list[ScriptArgument]:
    checkpointing = saved.plan.strategy.checkpointing
    settings = saved.workload.get("settings")
    given = settings if isinstance(settings, Mapping) else {}
    every = int(str(given.get("checkpoint.every", saved.plan.chosen.get("checkpoint.every", 1))))
    if checkpointing == "selective":
        return []
    full = checkpointing == "full"
    found = options.by_word(*_CHECKPOINTING_WORDS)
    spoken = found is not None and found.takes == "value"
    asked = [
        ScriptArgument(
            what=f"{checkpointing} activation checkpointing" if full else "no activation checkpointing",
            words=_CHECKPOINTING_WORDS,
            value=checkpointing if spoken else full,
            field="checkpointing",
            others=("true", "True", "1") if full else ("false", "False", "0"),
        )
    ]
    reentrant = given.get("checkpoint.reentrant") == "true"
    if full and (every > 1 or reentrant):
        values = {**({"every_n_layers": every} if every > 1 else {}), **({"use_reentrant": True} if reentrant else {})}
        what = [*([f"every {every} layers checkpointed"] if every > 1 else []), *(["reentrantly"] if reentrant else [])]
        asked.append(
            ScriptArgument(
                what=", ".join(what),
                words=("gradient_checkpointing_kwargs", "activation_checkpointing_kwargs"),
                value=json.dumps(values),
                needed=True,
            )
        )
    return asked


_OPTIMIZER_WORDS = ("optimizer", "optim", "optimizer_name")


def _stays(workload: Mapping[str, object], options: ScriptOptions, optimizer: str, words: tuple[str, ...]) -> bool:
    """Whether the script's own optimizer is kept: nobody asked for the plan's, and the script has another."""
    basis = workload.get("basis")
    nobody = isinstance(basis, Mapping) and basis.get("optimizer") == "default"
    option = options.by_word(*_OPTIMIZER_WORDS)
    own = None if option is None else option.default
    return nobody and isinstance(own, str) and own not in (optimizer, *words)


def _own(workload: Mapping[str, object], name: str) -> bool:
    """Whether a value is what the script was seen to do by itself: nothing need be told it."""
    basis = workload.get("basis")
    return isinstance(basis, Mapping) and basis.get(name) == "captured"


def _kernels(workload: Mapping[str, object], options: ScriptOptions) -> list[ScriptArgument]:
    """Optimizer, attention, fused loss and compilation: the script's own to make, unless it has an option for them."""
    optimizer, attention = str(workload["optimizer"]), str(workload["attention"])
    known = optimizers().get(optimizer)
    optim = "" if known is None else known.optim
    word = optim if options.training_arguments else optimizer
    asked = []
    if _stays(workload, options, optimizer, (word, optim)):
        pass  # what ran is compared afterwards
    elif word:
        names = ("optim",) if options.training_arguments else _OPTIMIZER_WORDS
        asked.append(
            ScriptArgument(
                what=f"optimizer {optimizer}",
                words=names,
                value=word,
                field="optimizer",
                needed=optimizer != DEFAULT_OPTIMIZER and not _own(workload, "optimizer"),
                others=(optim or word,),
            )
        )
    else:
        asked.append(
            ScriptArgument(
                what=f"optimizer {optimizer}", words=(), value=optimizer, needed=not _own(workload, "optimizer")
            )
        )
    asked.append(
        ScriptArgument(
            what=f"attention {attention}",
            words=("attn_implementation", "attn_impl", "attention_implementation"),
            value=_ATTENTION[attention],
            needed=attention != "sdpa" and not _own(workload, "attention"),
            others=(attention,),
        )
    )
    if workload.get("fused_loss"):
        asked.append(
            ScriptArgument(what="fused loss", words=("use_liger_kernel", "use_liger"), value=True, needed=True)
        )
    return asked
