"""One rank of a launch of pipelines: runs every case and writes what its allocator saw, and its losses (I/O).

python -m tests.support.ranks.piped.worker FOLDER RANK WORLD_SIZE
"""

import contextlib
import copy
import gc
import json
import os
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining import schedules as real
from torch.distributed.tensor import DTensor

from gpu_plan.executor.runner.parallel.meshes import by_mesh
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.trace.inputs.batch import training_batch
from gpu_plan.planner.trace.parallel.stages import StageModule, cut, stage_loss, untie
from gpu_plan.planner.trace.setup.checkpointing import set_checkpointing
from tests.support.cpu_reference import mark, measure, real_inputs, real_twin
from tests.support.ranks.native import in_new_storages
from tests.support.ranks.piped.case import ITERATIONS, PipedCase
from tests.support.ranks.settled import settled_collectives
from tests.support.ranks.settled_groups import among, one_thread_each, settle_waits
from tests.support.ranks.worker import dump


def batches(case: PipedCase, meta: Any) -> dict[str, torch.Tensor]:
    """Every pipeline's samples of one step, one pipeline's after the other's."""
    rows = case.micro_batch * case.micro_batches * case.pipelines
    inputs = real_inputs(training_batch(meta, batch=rows, seq_len=case.seq_len))
    generator = torch.Generator().manual_seed(2)
    drawn = torch.randint(5, 250, inputs["input_ids"].shape, generator=generator)
    return {"input_ids": drawn, "labels": drawn.clone()}


def stages_of(
    case: PipedCase, meta: Any, whole: nn.Module, rank: int, tensor: DeviceMesh | None = None
) -> list[StageModule]:
    """This rank's stages, or its part of them, with the weights of `whole`."""
    found = []
    for place in range(case.local):
        stage = case.cuts[place * case.stages + rank]
        part = copy.deepcopy(whole)
        cut(part, stage)
        if case.tensor > 1:
            share(part, tensor, whole)
        set_checkpointing(part, case.checkpointing)
        found.append(StageModule(part, stage).train())
    return found


def spread(case: PipedCase, module: StageModule, mesh: DeviceMesh) -> nn.Module:
    """A stage as its data parallel ranks hold it."""
    if case.strategy == "ddp_pp":
        return nn.parallel.DistributedDataParallel(module, process_group=mesh["dp"].get_group())
    if not case.strategy.startswith("fsdp"):
        return module
    from torch.distributed.fsdp import fully_shard

    base = getattr(module.model, module.model.base_model_prefix)
    if module.stage.is_first:
        fully_shard(base.embed_tokens, mesh=mesh["dp"], reshard_after_forward=False)
    for index in range(module.stage.first, module.stage.end):
        fully_shard(base.layers[index], mesh=mesh["dp"], reshard_after_forward=False)
    if module.stage.is_last:
        fully_shard([base.norm, module.model.lm_head], mesh=mesh["dp"], reshard_after_forward=False)
    return fully_shard(module, mesh=mesh["dp"], reshard_after_forward=False)


def run_case(case: PipedCase, losses: list[list[float]]) -> Any:
    meta = build_model(case.config(), dtype=getattr(torch, case.dtype))
    data = batches(case, meta)
    whole = real_twin(meta, getattr(torch, case.dtype), "sdpa")
    if case.tensor > 1:
        untie(whole)
    mesh = init_device_mesh("cpu", (case.stages, case.pipelines, case.tensor), mesh_dim_names=("pp", "dp", "tp"))
    among(mesh["tp"].get_group())
    place, replica = mesh["pp"].get_local_rank(), mesh["dp"].get_local_rank()
    rows = case.micro_batch * case.micro_batches
    data = {name: value[replica * rows : (replica + 1) * rows] for name, value in data.items()}
    modules = stages_of(case, meta, whole, place, mesh["tp"])
    return measure(_body(case, mesh, place, modules, data, losses))


def _body(
    case: PipedCase,
    mesh: DeviceMesh,
    place: int,
    modules: list[StageModule],
    data: dict[str, torch.Tensor],
    losses: list[list[float]],
) -> Callable[[], Any]:
    def body() -> Any:
        mark("start")
        made = [copied(module) for module in modules]
        mark("built")
        stages = [_stage(case, mesh, module, place, number) for number, module in enumerate(made)]
        mark("wrapped")
        parameters = [p for module in made for p in module.parameters()]
        groups = [{"params": group} for group in by_mesh(parameters)]
        optimizer = torch.optim.AdamW(groups, lr=1e-3, foreach=True)
        last = next((module for module in made if module.stage.is_last), None)

        def loss_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            assert last is not None
            return stage_loss(last.model, logits, labels)

        kind: Any = getattr(real, case.schedule.torch_class)
        given = stages if case.schedule.takes_stages else stages[0]
        schedule = kind(given, n_microbatches=case.micro_batches, loss_fn=loss_of)
        held: dict[str, Any] = {}
        for iteration in range(ITERATIONS):
            mark(f"begin:{iteration}")
            held["ids"] = data["input_ids"].clone() if made[0].stage.is_first else None
            held["labels"] = None if last is None else data["labels"].clone()
            words = {} if held["ids"] is None else {"args": (held["ids"],)}
            found: list[torch.Tensor] = []
            schedule.step(*words.get("args", ()), target=held["labels"], losses=found, return_outputs=False)
            losses.append([float(loss) for loss in found])
            del found
            mark(f"step:{iteration}")
            add_tied(made, mesh)
            optimizer.step()
            mark(f"stepped:{iteration}")
            optimizer.zero_grad()
            mark(f"rest:{iteration}")
        return made, stages, schedule, optimizer, held

    return body


def add_tied(made: list[StageModule], mesh: DeviceMesh) -> None:
    """Sums the gradients of a weight that embedding and head share between the stages that hold it."""
    ends = [module for module in made if module.stage.is_first or module.stage.is_last]
    if not ends or not ends[0].model.config.tie_word_embeddings:
        return
    model: Any = ends[0].model
    owner = model.get_input_embeddings() if ends[0].stage.is_first else model.lm_head
    if isinstance(owner.weight, DTensor):
        owner.weight.grad = owner.weight.grad.redistribute(placements=owner.weight.placements)
    gradient = owner.weight.grad
    local = gradient.to_local() if hasattr(gradient, "to_local") else gradient
    dist.all_reduce(local, group=mesh["pp"].get_group())


def copied(module: StageModule) -> StageModule:
    """The same stage in storages that are made here; what ranks compute together has functions bound to it."""
    if any(isinstance(each, DTensor) for each in module.parameters()):
        module.model = in_new_storages(module.model)
        return module
    return copy.deepcopy(module)


def share(part: Any, mesh: DeviceMesh | None, whole: Any) -> None:
    """Leaves of a stage what this rank computes of it, as transformers does (apply_tensor_parallelism)."""
    from transformers.distributed import DistributedConfig
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    assert mesh is not None
    plan, _, _ = whole._resolve_parallel_plans(DistributedConfig(tp_size=mesh.size()))
    names = {name for name, _ in (*part.named_modules(), *part.named_parameters())}
    apply_tensor_parallelism(part, mesh, {name: style for name, style in plan.items() if name in names})


def _stage(case: PipedCase, mesh: DeviceMesh, module: StageModule, place: int, number: int) -> PipelineStage:
    shape = (case.micro_batch, case.seq_len)
    hidden = torch.empty(*shape, module.model.config.hidden_size, dtype=getattr(torch, case.dtype), device="meta")
    ids = torch.empty(*shape, dtype=torch.int64, device="meta")
    logits = torch.empty(*shape, module.model.config.vocab_size, dtype=getattr(torch, case.dtype), device="meta")
    return PipelineStage(
        spread(case, module, mesh),
        number * case.stages + place,
        case.stages * case.local,
        torch.device("cpu"),
        input_args=ids if module.stage.is_first else hidden.requires_grad_(),
        output_args=logits.requires_grad_() if module.stage.is_last else hidden.detach().requires_grad_(),
        group=mesh["pp"].get_group(),
    )


def reference_losses(case: PipedCase) -> list[float]:
    """Mean loss of each step of one process that trains the same; tied weights stay one."""
    meta = build_model(case.config(), dtype=getattr(torch, case.dtype))
    data = batches(case, meta)
    model: Any = real_twin(meta, getattr(torch, case.dtype), "sdpa")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    found = []
    for _ in range(ITERATIONS):
        parts = len(data["input_ids"]) // case.micro_batch
        total = 0.0
        for ids, labels in zip(data["input_ids"].chunk(parts), data["labels"].chunk(parts), strict=True):
            loss = stage_loss(model, model(input_ids=ids, use_cache=False).logits, labels) / parts
            loss.backward()
            total += float(loss)
        optimizer.step()
        optimizer.zero_grad()
        found.append(total)
    return found


def main(folder: Path, rank: int, world_size: int) -> None:
    """Runs all cases, one after the other."""
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK=str(rank))
    one_thread_each()
    store = dist.FileStore(str(folder / "meeting"), world_size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=1500))
    settle_waits()
    for number, values in enumerate(json.loads((folder / "cases.json").read_text())):
        case, losses = PipedCase.from_dict(values), list[list[float]]()
        try:
            with settled_collectives() if case.settled else contextlib.nullcontext():
                text = dump(run_case(case, losses))
            kept = json.loads(text) | {"losses": losses}
            if rank == 0:
                kept["expected"] = reference_losses(case)
        except Exception:
            kept = {"error": traceback.format_exc()}
        (folder / f"case-{number}-rank-{rank}.json").write_text(json.dumps(kept))
        gc.collect()
        dist.barrier()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
