"""Whether transformers can spread a class over processes as the plan says: looked at before any is started."""

from typing import Any

from gpu_plan.executor.inference.job import InferenceJob
from gpu_plan.executor.inference.loading.piped import layer_list
from gpu_plan.planner.errors import PreflightError

_STAGED = ("embed_tokens", "layers", "norm")
"""What transformers' stages are made of: distributed/pipeline_parallel.py, apply_pipeline_parallelism."""


def check_spread(model: Any, job: InferenceJob) -> None:
    """PreflightError for a class without a plan for shards or stages, and for heads or layers that do not divide."""
    try:
        import transformers.distributed.tensor_parallel
    except ImportError:
        raise PreflightError(
            "the installed transformers cannot spread a model over processes: 5.20 or later can"
        ) from None
    if job.tensor_parallel > 1:
        _check_shards(model, job.tensor_parallel, transformers.distributed.tensor_parallel)
    if job.pipeline_parallel > 1:
        _check_stages(model, job)


def _check_shards(model: Any, ranks: int, module: Any) -> None:
    name = type(model).__name__
    plan = getattr(model, "tp_plan", None)
    if not plan:
        raise PreflightError(
            f"{name} has no tensor parallel plan in transformers: plan pipeline stages or a device map"
        )
    config = model.config.get_text_config(decoder=True)
    heads = getattr(config, "num_key_value_heads", None) or getattr(config, "num_attention_heads", None)
    split = getattr(module, "get_kv_heads_per_rank", None)
    if heads is not None and split is not None and split(plan, heads, ranks) is None:
        raise PreflightError(f"{name}: {heads} key-value heads do not divide by {ranks} tensor parallel ranks")


def has_stages(model: Any) -> bool:
    """Whether transformers itself makes pipeline stages of the class."""
    base: Any = getattr(model, model.base_model_prefix, None)
    return all(hasattr(base, part) for part in _STAGED) and hasattr(model, "lm_head") and not _encodes(model)


def _check_stages(model: Any, job: InferenceJob) -> None:
    name, stages = type(model).__name__, job.pipeline_parallel
    if _encodes(model):
        raise PreflightError(f"{name} encodes and decodes: it has no pipeline stages; plan a device map")
    count = layer_list(model)[1]
    if count < stages:
        raise PreflightError(f"{name} has {count} layers, fewer than {stages} pipeline stages")
    if has_stages(model):
        return
    if job.replicas > 1 or job.context is None:
        raise PreflightError(
            f"transformers makes no pipeline stages of {name}, and accelerate's are for one replica and a known"
            " context: plan a device map"
        )


def _encodes(model: Any) -> bool:
    return bool(getattr(model.config, "is_encoder_decoder", False))
