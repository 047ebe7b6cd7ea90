"""Two iterations of a training loop as a user writes it, profiled from the model's construction on."""

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.trace.inputs.batch import training_batch, training_loss
from gpu_plan.planner.trace.parallel.sequence import step_of_parts
from gpu_plan.planner.trace.setup.checkpointing import set_checkpointing
from gpu_plan.planner.workload.training import Optimizer
from tests.support.cpu_reference import Reference, mark, measure, real_inputs, real_twin
from tests.support.ranks.case import RankCase
from tests.support.ranks.wrapping import without_sync, wrap

ITERATIONS = 2


def run_case(case: RankCase) -> Reference:
    """Runs a case on this rank and returns what its allocator saw."""
    meta = build_model(
        case.config,
        attention=case.attention.value,
        dtype=getattr(torch, case.stored),
    )
    inputs = real_inputs(training_batch(meta, batch=case.micro_batch, seq_len=case.seq_len))
    if case.lora_rank:
        import peft  # noqa: F401  (its own constants are no part of the run)
    if case.quantised:
        from tests.support.ranks.quantised import asked_as_on_cuda, warm_up

        warm_up()
        with asked_as_on_cuda():
            return measure(_any_body(case, meta, inputs))
    return measure(_any_body(case, meta, inputs))


def _any_body(case: RankCase, meta: nn.Module, inputs: dict[str, Any]) -> Callable[[], Any]:
    if not case.strategy.startswith("zero"):
        return _body(case, meta, inputs)
    from tests.support.ranks.zero_loop import zero_body

    return zero_body(case, meta, inputs)


def with_adapters(model: Any, case: RankCase) -> Any:
    """As peft itself wraps it."""
    import peft

    targets = list(case.lora_targets) or None
    config = peft.LoraConfig(r=case.lora_rank, target_modules=targets, task_type="CAUSAL_LM")
    return peft.get_peft_model(model, config).train()


def _quantised(model: Any, case: RankCase) -> Any:
    if not case.quantised:
        return model
    from tests.support.ranks.quantised import quantised

    return quantised(model, getattr(torch, case.stored))


def _body(case: RankCase, meta: nn.Module, inputs: dict[str, Any]) -> Callable[[], Any]:
    part = None
    if max(case.tensor_parallel, case.expert_parallel) > 1:
        from tests.support.ranks.native import copied, in_new_storages, loaded

        part = loaded(case, meta)
        copied = in_new_storages if case.cuts_sequence else copied

    def body() -> Any:
        mark("start")
        model = real_twin(meta, getattr(torch, case.stored), case.attention.value) if part is None else copied(part)
        if case.lora_rank:
            model = with_adapters(_quantised(model, case), case)
        set_checkpointing(model, case.checkpointing)
        mark("built")
        model = wrap(model, case)
        mark("wrapped")
        optimizer = optimizer_of(case, groups_of(model))
        held: dict[str, Any] = {}
        for iteration in range(ITERATIONS):
            for micro_step in range(case.accumulation):
                last = micro_step == case.accumulation - 1
                with contextlib.nullcontext() if last else without_sync(model, case):
                    _micro_step(case, model, inputs, held, f":{iteration}:{micro_step}")
            mark(f"step:{iteration}")
            optimizer.step()
            mark(f"stepped:{iteration}")
            optimizer.zero_grad()
            mark(f"rest:{iteration}")
        return model, optimizer, held

    return body


def optimizer_of(case: RankCase, parameters: Iterable[Any]) -> torch.optim.Optimizer:
    """torch's own; a case that names no loop takes the list operations that CUDA would."""
    if case.optimizer == Optimizer("sgd-momentum"):
        return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, foreach=True)
    return torch.optim.AdamW(parameters, lr=1e-3, foreach=case.optimizer == Optimizer("adamw"))


def groups_of(model: nn.Module) -> list[dict[str, Any]]:
    """Parameters by the mesh that they are split on, as torch's list operations take them: one group, or two."""
    by_mesh: dict[Any, list[nn.Parameter]] = {}
    for parameter in model.parameters():
        by_mesh.setdefault(getattr(parameter, "device_mesh", None), []).append(parameter)
    return [{"params": parameters} for parameters in by_mesh.values()]


def _micro_step(case: RankCase, model: nn.Module, inputs: dict[str, Any], held: dict[str, Any], suffix: str) -> None:
    """One forward and backward; the batch, the outputs and the loss of the step before live until rebound."""
    mark("begin" + suffix)
    held["batch"] = {
        name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in inputs.items()
    }
    with step_of_parts(model) if case.cuts_sequence else contextlib.nullcontext():
        held["outputs"] = model(**held["batch"])
        held["loss"] = training_loss(model, held["outputs"])
        if case.cuts_sequence:
            del held["outputs"]
        mark("bound" + suffix)
        held["loss"].backward()
    mark("backward_end" + suffix)
