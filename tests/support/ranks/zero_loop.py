"""Two iterations under real DeepSpeed ZeRO on gloo, stepped as accelerate steps an engine.

Three things differ from a GPU rank, none of which changes what DeepSpeed allocates for itself: its shared-memory
operator for CPU all-reduces is not built (it would compile for a minute), its CPU Adam neither (`offload` keeps torch's
own optimizer, zero_force_ds_cpu_optimizer false), and its collectives return when gloo's threads have let go.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from gpu_plan.planner.trace.inputs.batch import training_loss
from gpu_plan.planner.trace.setup.checkpointing import set_checkpointing
from tests.support.cpu_reference import mark, real_twin
from tests.support.ranks.case import RankCase

ITERATIONS = 2
_KEYS = {
    "zero.reduce_bucket_size": "reduce_bucket_size",
    "zero.overlap_comm": "overlap_comm",
    "zero.prefetch_bucket_size": "stage3_prefetch_bucket_size",
    "zero.param_persistence_threshold": "stage3_param_persistence_threshold",
    "zero.max_live_parameters": "stage3_max_live_parameters",
    "zero.max_reuse_distance": "stage3_max_reuse_distance",
    "zero.sub_group_size": "sub_group_size",
}
"""`--set` keys and DeepSpeed's own."""


def configuration(case: RankCase) -> dict[str, Any]:
    """DeepSpeed's JSON for a case; what it does not name has DeepSpeed's default."""
    zero: dict[str, Any] = {"stage": int(case.strategy.removeprefix("zero"))}
    for key, name in _KEYS.items():
        if key in case.settings:
            text = case.settings[key]
            zero[name] = text == "true" if text in ("true", "false") else int(text)
    config: dict[str, Any] = {
        "zero_optimization": zero,
        "train_micro_batch_size_per_gpu": case.micro_batch,
        "gradient_accumulation_steps": case.accumulation,
        "train_batch_size": case.micro_batch * case.accumulation * dist.get_world_size(),
        "zero_allow_untested_optimizer": True,
    }
    if case.weights == "bfloat16":
        config["bf16"] = {"enabled": True}
    return config


@contextlib.contextmanager
def prepared(config: dict[str, Any]) -> Iterator[None]:
    """transformers builds models under deepspeed.zero.Init while such a configuration is alive."""
    from transformers.integrations.deepspeed import HfDeepSpeedConfig, unset_hf_deepspeed_config

    kept = HfDeepSpeedConfig(config)
    try:
        yield
    finally:
        unset_hf_deepspeed_config()
        del kept


def import_deepspeed() -> Any:
    """DeepSpeed on CPU processes that are joined already, without operators to compile."""
    import os

    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed

    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    return deepspeed


def zero_body(case: RankCase, meta: nn.Module, inputs: dict[str, Any]) -> Callable[[], Any]:
    """The loop, to be measured."""
    from tests.support.ranks.loop import optimizer_of, with_adapters
    from tests.support.ranks.quantised import quantised

    deepspeed = import_deepspeed()

    def body() -> Any:
        config = configuration(case)
        mark("start")
        with prepared(config) if case.strategy == "zero3" and not case.quantised else contextlib.nullcontext():
            model = real_twin(meta, getattr(torch, case.stored), case.attention.value)
        if case.quantised:
            # transformers has no zero.Init for a quantised model: deepspeed.initialize partitions it.
            model = with_adapters(quantised(model, getattr(torch, case.stored)), case)
        elif case.lora_rank:
            model = with_adapters(model, case)
        set_checkpointing(model, case.checkpointing)
        mark("built")
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = optimizer_of(case, trained)
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config_params=config)
        mark("wrapped")
        held: dict[str, Any] = {}
        for iteration in range(ITERATIONS):
            for micro_step in range(case.accumulation):
                last = micro_step == case.accumulation - 1
                _micro_step(engine, inputs, held, last, f":{iteration}:{micro_step}")
            mark(f"step:{iteration}")
            engine.step()
            mark(f"stepped:{iteration}")
            mark(f"rest:{iteration}")
        return engine, optimizer, held

    return body


def _micro_step(engine: Any, inputs: dict[str, Any], held: dict[str, Any], last: bool, suffix: str) -> None:
    """accelerate utils/deepspeed.py: DeepSpeedEngineWrapper.backward; batch, outputs and loss live until rebound."""
    mark("begin" + suffix)
    held["batch"] = {
        name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in inputs.items()
    }
    held["outputs"] = engine(**held["batch"])
    held["loss"] = training_loss(engine.module, held["outputs"])
    mark("bound" + suffix)
    engine.set_gradient_accumulation_boundary(is_boundary=last)
    engine.backward(held["loss"])
    mark("backward_end" + suffix)
