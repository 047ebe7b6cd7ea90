"""Every option and setting of a job with every strategy: what it changes, or who says that it changes nothing."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gpu_plan.commands.job.asking import find_plans
from gpu_plan.executor.job import Job
from gpu_plan.executor.launch.engines.registry import OWN_LOOPS
from gpu_plan.executor.launch.export import export
from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.options.generation import STRATEGIES
from gpu_plan.planner.options.given.named import named, namespace, shown_words
from gpu_plan.planner.options.parser import job_option_names, refuse_what_is_not_built
from gpu_plan.planner.options.settings import SETTINGS
from gpu_plan.planner.plan.codec import plain
from gpu_plan.planner.plan.document import PlanDocument
from gpu_plan.planner.plan.saved import saved_plan
from gpu_plan.planner.strategy.known import strategies, traits_of

Values = Mapping[str, object]
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "intermediate_size": 512,
    "num_attention_heads": 16, "num_key_value_heads": 8, "num_hidden_layers": 16, "vocab_size": 1024,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
}  # fmt: skip
"""Small, and in it every setting can show: several blocks for each of eight stages, groups of heads, a head of its
own."""
EXPERTS = {
    **LLAMA, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "head_dim": 32,
    "moe_intermediate_size": 128, "num_experts": 8, "num_experts_per_tok": 2, "num_hidden_layers": 4,
}  # fmt: skip
"""The same for strategies that share experts out."""

OPTIONS: Mapping[str, tuple[object, ...]] = {
    "precision": ("fp32", "bf16"), "optimizer": ("sgd", "adamw-8bit"), "checkpointing": ("full", "selective"),
    "attention": ("eager", "flash"), "fused-loss": (True,), "stack": ("trainer", "plain"), "compile": (True,),
    "offload": ("optimizer", "all", "nvme"), "seq-len": (64,), "micro-batch": (2,), "global-batch": (16,),
    "grad-accum": (2,), "context": (64,), "batch": (2,), "new-tokens": (8,), "kv-dtype": ("fp8",),
    "quantize": ("int8",), "peft": ("lora", "qlora"), "lora-rank": (8,), "lora-targets": ("q_proj",),
    "dp-replicate": (4,), "tp": (4,), "pp": (2,), "ep": (4,), "cp": (2,), "schedule": ("gpipe",), "vpp": (4,),
    "host-ram": ("1GiB",),
    "host-nvme": ("1GiB",),
}  # fmt: skip
"""Values that are no defaults, by option."""
OWN: Mapping[tuple[str, str], Values] = {("infer", "tp"): {"tp": 2}, ("infer", "pp"): {"pp": 4}}
"""What a strategy cannot do without, by task and strategy."""
NO_PAIR = {
    "task": "decides which options there are", "strategy": "is the other half of each pair",
    "trust-remote-code": "about where code comes from", "revision": "about which files of the model are read",
    "pin": "is given in every pair", "hosts": "about a launch", "max-restarts": "about a launch",
    "data": "about a script whose data are not at hand",
    "script-seconds": "about a script that is followed",
    "prefer": "orders the plans of a search, and nothing is searched here",
    "tokens": "about the whole job's time and cost", "epochs": "about the whole job's time and cost",
    "dataset-tokens": "about the whole job's time and cost", "budget": "about the whole job's time and cost",
    **dict.fromkeys(
        (
            "recipe", "prompt-len", "completion-len", "reference", "critic", "teacher", "generations", "reward-model",
            "vllm",
            "vllm-sleep",
        ),
        "of a job of several models, captured as a script: tests/capture/test_recipe_jobs.py",
    ),
    **dict.fromkeys(
        ("server", "concurrency", "gpu-memory-utilization", "vllm-tp", "max-num-seqs",
         "max-num-batched-tokens", "enforce-eager"),
        "of a server, whose memory is computed and not replayed: tests/trace/test_serving_job.py",
    ),
    "deadline": "about the whole job's time and cost", "price": "about the whole job's time and cost",
}  # fmt: skip
"""Options that stand in no pair, and why."""
SETTING_VALUES: Mapping[str, tuple[object, ...]] = {
    "fsdp.reshard_after_forward": ("false",), "fsdp.sync_each_batch": ("true",),
    "fsdp.use_orig_params": ("false",),
    "dtype.params": ("bfloat16",), "dtype.reduce": ("float32", "bfloat16"),
    "megatron.sequence_parallel": ("false",), "megatron.distributed_optimizer": ("false",),
    "megatron.context_comm": ("a2a",),
    "megatron.overlap": ("false",), "megatron.optimizer_instances": (2,), "megatron.group_size": (2,),
    "megatron.recompute_method": ("block",), "megatron.recompute_layers": (2,),
    "megatron.recompute_modules": ("mlp",),
    "megatron.cross_entropy": ("native", "te", "verl"), "megatron.gradient_fusion": ("false",),
    "megatron.activation_fusion": ("false",), "megatron.deallocate_outputs": ("false",),
    "megatron.grad_dtype": ("bfloat16",), "megatron.precision_aware": ("true",),
    "megatron.moments_dtype": ("bfloat16",),
    "megatron.fp8_recipe": ("tensorwise",), "megatron.mtp_layers": (1,), "megatron.fp8_params": ("true",),
    "megatron.expert_tensor": (2,), "megatron.first_layers": (1,), "megatron.last_layers": (1,),
    "megatron.dispatcher": ("allgather", "flex"), "megatron.router_dtype": ("bfloat16",),
    "megatron.grouped_experts": ("false",), "megatron.expert_capacity": (1.5,),
    "megatron.expert_load": (1.5,),
    "megatron.embedding_counts": ("true",), "megatron.loss_counts": ("true",),
    "pipeline.split": ("balanced",), "cp.rotation": ("alltoall",), "checkpoint.offload": ("true",),
    "checkpoint.reentrant": ("true",),
    "ddp.gradient_as_bucket_view": ("true",), "zero.reduce_bucket_size": (3000,),
    "zero.prefetch_bucket_size": (3000,), "zero.param_persistence_threshold": (0,), "zero.max_live_parameters": (3000,),
    "zero.max_reuse_distance": (0,), "zero.sub_group_size": (100000,), "zero.overlap_comm": ("true", "false"),
    "zero.pin_memory": ("false",), "zero.nvme_path": ("/elsewhere",), "zero.offload_param": ("cpu", "none"),
    "zero.max_in_cpu": (0,), "zero.param_buffer_count": (9,), "zero.param_buffer_size": (3000000,),
    "zero.optimizer_buffer_count": (6,), "checkpoint.every": (2,), "kernels.liger": ("true",), "fp8.backend": ("te",),
    "fp8.all_gather": ("false",), "compile.backend": ("inductor", "aot_eager"), "compile.mode": ("max-autotune",),
    "compile.regional": ("true",), "lora.dropout": (0.1,), "lora.beside": (1,),
    "quant.base": ("int8", "fp4"), "quant.double": ("true",),
    "data.split_batches": ("true",), "data.dispatch_batches": ("true",), "data.even_batches": ("false",),
    "data.seedable_sampler": ("true",), "loss.variant": ("transformers-4.48",), "data.padding": ("longest", 0.25),
    "eval.batch": (8,), "eval.keep_logits": ("true",), "eval.samples": (64,), "eval.accumulation_steps": (2,),
    "eval.every": (500,),
    "cache.implementation": ("static",), "prefill.chunk": (128,), "memory.reserve": ("1GiB",),
    "alloc.expandable_segments": ("true",),
    "alloc.max_split_size_mb": (20,), "alloc.roundup_power2_divisions": (4,),
    "alloc.garbage_collection_threshold": (0.5,), "clip.max_norm": (0.5,), "quant.storage": ("uint8", "float16"),
    "quant.experts": ("true",), "quant.upcast": ("none",), "gpu.power_limit": (350,),
    "gpu.network": ("roce",), "recipe.logits": ("whole",),
    "attention.kernel": ("flash1", "flash3"),
}  # fmt: skip
SWAPPED: Values = {"offload": "nvme"}
BESIDE: Mapping[str, Values] = {
    "lora-rank": {"peft": "lora"}, "lora-targets": {"peft": "lora"}, "lora.dropout": {"peft": "lora"},
    "lora.beside": {"peft": "lora"},
    "quant.base": {"peft": "qlora"}, "quant.double": {"peft": "qlora"}, "checkpoint.every": {"checkpointing": "full"},
    "checkpoint.reentrant": {"checkpointing": "full"},
    "fp8.backend": {"precision": "fp8-mixed"}, "fp8.all_gather": {"precision": "fp8-mixed"},
    "compile.mode": {"compile": True}, "compile.regional": {"compile": True}, "zero.pin_memory": {"offload": "all"},
    "eval.keep_logits": {"set": {"eval.batch": 64, "eval.samples": 9999}},
    "eval.samples": {"set": {"eval.batch": 64, "eval.keep_logits": "true", "eval.accumulation_steps": 999}},
    "eval.accumulation_steps": {"set": {"eval.batch": 64, "eval.samples": 9999, "eval.keep_logits": "true"}},
    "eval.every": {"set": {"eval.batch": 64, "eval.samples": 9999}},
    "zero.nvme_path": SWAPPED, "zero.offload_param": SWAPPED, "zero.max_in_cpu": SWAPPED,
    "zero.param_buffer_count": SWAPPED, "zero.param_buffer_size": SWAPPED, "zero.optimizer_buffer_count": SWAPPED,
    "data.padding": {"micro-batch": 4}, "schedule": {"pp": 2}, "vpp": {"pp": 2, "schedule": "interleaved"},
    "pipeline.split": {"pp": 2}, "quant.storage": {"peft": "qlora"}, "quant.upcast": {"peft": "qlora"},
    "megatron.context_comm": {"cp": 2}, "megatron.fp8_recipe": {"precision": "fp8-mixed"},
    "megatron.fp8_params": {"precision": "fp8-mixed"},
    "megatron.dispatcher": {"ep": 2}, "megatron.expert_capacity": {"ep": 2}, "megatron.expert_load": {"ep": 2},
    "megatron.group_size": {"pp": 2, "schedule": "interleaved", "vpp": 2},
    "megatron.embedding_counts": {"pp": 2, "set": {"megatron.loss_counts": "true"}},
    "megatron.loss_counts": {"pp": 2, "set": {"megatron.embedding_counts": "true"}},
    "fsdp.sync_each_batch": {"grad-accum": 2},
    "cp.rotation": {"cp": 2}, "checkpoint.offload": {"checkpointing": "full"}, "quant.experts": {"peft": "qlora"},
}  # fmt: skip
"""What an option says something about, given beside it in a further pair."""

OF_EXPERTS = frozenset(
    f"megatron.{name}"
    for name in ("dispatcher", "router_dtype", "grouped_experts", "expert_capacity", "expert_load", "expert_tensor")
)
"""Settings that say something about a model with experts alone."""

Ending = Literal["changes", "refused", "named", "silent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One option with a value, under one strategy, beside what it needs."""

    task: str
    strategy: str
    option: str
    value: object
    setting: bool
    beside: Values = field(default_factory=dict)

    @property
    def label(self) -> str:
        """`zero2: zero.pin_memory=false beside offload=all`."""
        beside = " ".join(shown_words(named(self.beside)))
        return f"{self.task} {self.strategy}: {self.option}={self.value}" + (f" beside {beside}" if beside else "")

    def values(self, *, given: bool) -> dict[str, object]:
        """The job with the option, or without."""
        own = {"strategy": self.strategy, "pin": True, **({"task": "infer"} if self.task == "infer" else {})}
        values = {**own, **OWN.get((self.task, self.strategy), {}), **self.beside}
        if given and self.setting:
            beside = self.beside.get("set", {})
            assert isinstance(beside, Mapping)
            values["set"] = {**beside, self.option: self.value}
        elif given:
            values[self.option] = self.value
        return values


def pairs() -> Iterator[Pair]:
    """All of them: each alone, and each beside what it says something about."""
    assert set(OPTIONS) | set(NO_PAIR) | {"gpus"} >= set(job_option_names()), "an option without a value to try"
    assert set(SETTING_VALUES) == set(SETTINGS), "a setting without a value to try"
    tasks = {"train": tuple(strategies()), "infer": STRATEGIES}
    for task, names in tasks.items():
        for strategy in names:
            for setting, table in ((False, OPTIONS), (True, SETTING_VALUES)):
                for option, values in table.items():
                    for value in values:
                        if task == "train" and _is_its_own(strategy, option, value):
                            continue
                        yield Pair(task=task, strategy=strategy, option=option, value=value, setting=setting)
                        if option in BESIDE and task == "train":
                            beside = BESIDE[option]
                            yield Pair(
                                task=task, strategy=strategy, option=option, value=value, setting=setting, beside=beside
                            )


def _is_its_own(strategy: str, option: str, value: object) -> bool:
    """Whether the strategy has this value where nothing is said."""
    traits = traits_of(strategy)
    in_fp32 = traits.spreads or bool(traits.pipeline_parallel)
    return option == "dtype.reduce" and value == ("float32" if in_fp32 else "bfloat16")


def gpus_of(pair: Pair) -> str:
    """One device where the strategy takes one, else two nodes of four: as few as have replicas of shards of groups."""
    alone = pair.strategy == "single" or (pair.task == "train" and traits_of(pair.strategy).one_device)
    return "1xH100" if alone else "2x4xH100"


@dataclass(frozen=True, slots=True)
class Models:
    """Folders of the models that are planned."""

    dense: Path
    experts: Path

    def of(self, pair: Pair) -> Path:
        """What the pair's strategy can be planned for."""
        if pair.task != "train":
            return self.dense
        traits = traits_of(pair.strategy)
        shares = traits.expert_parallel == "must" or (traits.own_model and pair.option in OF_EXPERTS)
        return self.experts if shares else self.dense


def write_models(folder: Path) -> Models:
    """Both, in folders of their own."""
    for name, config in (("dense", LLAMA), ("experts", EXPERTS)):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
    return Models(folder / "dense", folder / "experts")


def planned(values: Values, model: Path, gpus: str) -> PlanDocument:
    """The document; PlanError as the command line raises it."""
    job = named({**values, "model": str(model), "gpus": gpus})
    args = namespace(job)
    refuse_what_is_not_built(args)
    return find_plans(args, shown_words(job)).document


def told(document: PlanDocument, folder: Path) -> str:
    """All that a document says, and what would be launched, but for the echo of what was asked."""
    shown = plain(document)
    assert isinstance(shown, dict)
    for key in ("workload", "command", "created_with"):
        shown.pop(key, None)
    files: object = None
    if document.best is not None and document.workload.get("task") != "infer":
        files = _launched(document, folder)
    return json.dumps([shown, files], default=str, sort_keys=True)


def _launched(document: PlanDocument, folder: Path) -> object:
    """What is written for a launch, or why nothing can be."""
    # Without a script: what a script must do itself is among what is not applied.
    job = Job(saved=saved_plan(document), script=Path("train.py"), working_directory=folder, command="")
    traits = traits_of(job.saved.plan.strategy.name)
    engine = "torchrun" if traits.spreads or traits.pipeline_parallel else "accelerate"
    if traits.own_model:
        engine = next(iter(OWN_LOOPS))
    try:
        made = export(job, None, engine=engine, folder=folder)
    except PlanError as problem:
        return str(problem)
    written = {name: _without_header(text) for name, text in made.files.items()}
    return [written, dict(made.environment), list(made.command), list(made.not_applied)]


def _without_header(text: str) -> str:
    """A launch file without the command line that made it."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("# Made by"))


def names_it(document: PlanDocument, pair: Pair) -> bool:
    """Whether a note of the document says that this option is without effect."""
    marks = (f"--set {pair.option}", f"--{pair.option}", pair.option)
    lines = [*document.warnings, *(note.text for note in document.assumptions)]
    return any("without effect" in line and any(mark in line for mark in marks) for line in lines)


def ending(pair: Pair, models: Models, plain_of: dict[str, str]) -> tuple[Ending, str]:
    """What became of a pair, and the words that say so; `plain_of` keeps what the jobs without the option say."""
    gpus, model = gpus_of(pair), models.of(pair)
    try:
        document = planned(pair.values(given=True), model, gpus)
        with_it = told(document, model)
    except PlanError as problem:
        return "refused", str(problem)
    if names_it(document, pair):
        return "named", ""
    key = json.dumps([pair.values(given=False), gpus, model], sort_keys=True, default=str)
    if key not in plain_of:
        try:
            plain_of[key] = told(planned(pair.values(given=False), model, gpus), model)
        except PlanError as problem:
            plain_of[key] = f"refused: {problem}"
    return ("silent" if with_it == plain_of[key] else "changes"), ""
