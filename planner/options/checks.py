"""What a finished workload asks of the devices and of the model that they cannot have: one line each."""

import importlib.util
import math

from gpu_plan.planner.errors import InputError, NotBuiltError, UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.model.kernels.liger import check_liger
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.options.degrees.megatron import runs_own_model
from gpu_plan.planner.units import format_gib
from gpu_plan.planner.workload.precisions import default_precision, in_float8, mixed_in
from gpu_plan.planner.workload.training import MOST_TOKENS, Attention, Workload

_EVALUATION = ("eval.keep_logits", "eval.samples", "eval.accumulation_steps", "eval.every")


def check_workload(workload: Workload, cluster: Cluster, spec: ModelSpec) -> None:
    """UsageError, or another PlanError, where the job makes no sense on this cluster or for this model."""
    check_tokens(workload, cluster, spec)
    _check_settings(workload, cluster)
    _check_power(workload, cluster)
    _check_network(workload, cluster)
    _check_attention_kernel(workload, cluster)
    _check_float8(workload, cluster)
    _check_loaded(workload)
    _check_compilation(workload)
    _check_evaluation(workload)
    if workload.fused and cluster.gpu.is_cpu:
        raise UsageError("--fused-loss and --set kernels.liger are Triton kernels: they need a GPU")
    if "loss" in workload.fused and workload.setting("loss.variant", "installed") != "installed":
        raise UsageError("--set loss.variant is about transformers' own loss, which --fused-loss replaces: drop one")
    check_liger(workload.fused, spec.model_type, spec.class_name)


def check_tokens(workload: Workload, cluster: Cluster, spec: ModelSpec) -> None:
    """A micro batch beyond MOST_TOKENS fits nowhere: its token ids and labels alone, int64, are more than 1 GB."""
    samples, length = workload.micro_batch or 1, workload.seq_len if spec.has_sequence else 1
    if workload.micro_batch is None and workload.global_batch is not None and workload.grad_accum is not None:
        samples = max(1, workload.global_batch // (workload.grad_accum * cluster.world_size))
    if samples * length > MOST_TOKENS:
        raise UsageError(
            f"a micro batch of {samples:,} x {length:,} tokens is more than the {MOST_TOKENS:,}"
            " that are planned for one step of a GPU: give a smaller --micro-batch, and --grad-accum for the rest"
        )


def _check_settings(workload: Workload, cluster: Cluster) -> None:
    """Settings that the devices cannot have."""
    allocator = next((key for key, _ in workload.settings if key.startswith("alloc.")), None)
    if allocator is not None and cluster.gpu.is_cpu:
        raise UsageError(f"--set {allocator} is about CUDA's caching allocator, which a CPU does not have")
    if workload.reserve_bytes >= cluster.capacity_bytes:
        raise UsageError(
            f"--set memory.reserve leaves nothing: {format_gib(workload.reserve_bytes)} GiB of the"
            f" {format_gib(cluster.capacity_bytes)} that each device has"
        )


def _check_power(workload: Workload, cluster: Cluster) -> None:
    """UsageError for a limit that the devices cannot have."""
    given = dict(workload.settings).get("gpu.power_limit")
    if given is None:
        return
    gpu = cluster.gpu
    if gpu.is_cpu:
        raise UsageError("--set gpu.power_limit is about GPUs: --gpus cpu has none")
    if gpu.tdp_watts is None:
        raise UsageError(f"--set gpu.power_limit: the power of {gpu.short} is not known: leave it out")
    if not gpu.tdp_watts / 10 <= int(given) <= gpu.tdp_watts:
        raise UsageError(
            f"--set gpu.power_limit={given}: {gpu.short} takes {gpu.tdp_watts:g} W:"
            f" give {math.ceil(gpu.tdp_watts / 10)} to {gpu.tdp_watts:g}"
        )


def _check_network(workload: Workload, cluster: Cluster) -> None:
    """A network says nothing where no GPUs are."""
    if workload.setting("gpu.network", "") and cluster.gpu.is_cpu:
        raise UsageError("--set gpu.network is about what joins nodes of GPUs: --gpus cpu has none")


def _check_attention_kernel(workload: Workload, cluster: Cluster) -> None:
    """A generation of fused kernels says nothing where none runs."""
    if workload.setting("attention.kernel", "") == "":
        return
    if cluster.gpu.is_cpu:
        raise UsageError("--set attention.kernel is about kernels of GPUs: --gpus cpu has none")
    if workload.attention is Attention.EAGER:
        raise UsageError("--set attention.kernel is about fused attention: --attention eager runs none of it")


def _check_compilation(workload: Workload) -> None:
    """A mode is inductor's, and nothing is said of how where nothing is compiled."""
    given = dict(workload.settings)
    asked = next((key for key in ("compile.mode", "compile.regional") if key in given), None)
    backend = given.get("compile.backend")
    if asked is not None and backend is None:
        raise UsageError(f"--set {asked} needs --set compile.backend=inductor, aot_eager or eager")
    if given.get("compile.mode", "default") != "default" and backend != "inductor":
        raise UsageError(f"--set compile.mode={given['compile.mode']} is inductor's: --set compile.backend=inductor")


def _check_evaluation(workload: Workload) -> None:
    """UsageError where the settings of an evaluation do not say enough, or say something of none."""
    given = dict(workload.settings)
    if "eval.batch" not in given:
        lone = next((key for key in _EVALUATION if key in given), None)
        if lone is not None:
            raise UsageError(f"--set {lone} needs --set eval.batch: how many samples a rank evaluates at once")
        return
    keeps = given.get("eval.keep_logits") == "true"
    if keeps and "eval.samples" not in given and "eval.accumulation_steps" not in given:
        raise UsageError(
            "--set eval.keep_logits needs --set eval.samples, or eval.accumulation_steps: how many are kept"
        )
    if "eval.every" in given and "eval.samples" not in given:
        raise UsageError("--set eval.every needs --set eval.samples: how many samples an evaluation takes")
    kept = ("eval.accumulation_steps",) if "eval.every" in given else ("eval.samples", "eval.accumulation_steps")
    of_kept = next((key for key in kept if key in given), None)
    if not keeps and of_kept is not None:
        raise UsageError(f"--set {of_kept} is about logits that are kept: --set eval.keep_logits=true")


def _check_loaded(workload: Workload) -> None:
    """A type of its own for the weights, which autocast must be able to work with."""
    loaded = dict(workload.settings).get("dtype.params")
    if loaded is None:
        return
    if not workload.precision.is_mixed:
        raise UsageError(f"--set dtype.params is about mixed precision: {workload.precision} says it already")
    if workload.peft.adapts:
        raise UsageError("--set dtype.params is about training all weights: peft decides the types of a frozen base")
    computed = workload.precision.compute_dtype
    if loaded == "bfloat16" and computed != loaded:
        raise UsageError(
            f"--set dtype.params={loaded} needs --precision {mixed_in(loaded)}: {workload.precision} multiplies in"
            f" {computed}"
        )


def _check_transformer_engine(workload: Workload, cluster: Cluster) -> None:
    if cluster.gpu.is_cpu:
        raise UsageError("--set fp8.backend=te: Transformer Engine computes on GPUs alone; torchao is emulated")
    if "fp8.all_gather" in dict(workload.settings):
        raise UsageError("--set fp8.all_gather is about torchao's weights: drop it, or --set fp8.backend=te")


def _check_float8(workload: Workload, cluster: Cluster) -> None:
    """float8 products need tensor cores that have them, or a CPU, which emulates them; and torchao."""
    asked = next((key for key, _ in workload.settings if key.startswith("fp8.")), None)
    if not workload.precision.is_float8:
        if asked is not None:
            raise UsageError(f"--set {asked} needs --precision {in_float8()}")
        return
    gpu = cluster.gpu
    if not gpu.is_cpu and not gpu.supports_fp8:
        has = "" if gpu.compute_capability is None else " ({}.{})".format(*gpu.compute_capability)
        raise UsageError(
            f"--precision {workload.precision}: {gpu.short}{has} has no float8 tensor cores, which come with compute"
            f" capability 8.9; use {default_precision(gpu.supports_bf16)}"
        )
    if workload.peft.adapts:
        raise NotBuiltError(f"--precision {workload.precision} --peft {workload.peft}")
    if workload.setting("fp8.backend", "torchao") == "te":
        _check_transformer_engine(workload, cluster)
    elif not runs_own_model(workload.strategy) and importlib.util.find_spec("torchao") is None:
        raise InputError(f"--precision {workload.precision} needs the torchao library: pip install 'gpu-plan[fp8]'")
