"""torch.distributed for one rank of the planned job: collectives that nobody answers, wrappers that wrap nothing.

The planner's strategies add what DDP and FSDP take; a script's own wrapping would only stand in the way.
"""

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn

from gpu_plan.planner.capture.answers.devices.whereabouts import users_own
from gpu_plan.planner.capture.imports import when_imported
from gpu_plan.planner.capture.script.ranks import ranks_started_here
from gpu_plan.planner.capture.script.texts import texts
from gpu_plan.planner.capture.sharding.of_accelerate import take_degrees, take_plugin
from gpu_plan.planner.capture.sharding.own import wrapped
from gpu_plan.planner.capture.sharding.parameters import answer_for
from gpu_plan.planner.capture.sharding.stand_ins import FullyShardedDataParallel, fully_shard, taken
from gpu_plan.planner.errors import InputError

_SILENT = (
    "all_reduce", "broadcast", "barrier", "reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter",
    "reduce_scatter_tensor", "all_to_all", "gather", "scatter", "monitored_barrier",
)  # fmt: skip

_LAUNCHED = ("init_process_group", "LOCAL_RANK", "deepspeed.init", "init_device_mesh(")
"""Words of a script that a launcher starts on each device."""
_OF_LIGHTNING = re.compile(r"^\s*(import|from)\s[^#\n]*\b(lightning|pytorch_lightning)\b", re.M)
"""A Trainer that counts the GPUs before it, and starts a process for each unless the environment says who has."""
_JOINING = ("torch.distributed.distributed_c10d", "torch.distributed.device_mesh")
"""Modules that join a group by themselves: a mesh of devices does where none is joined yet."""


class DistributedDataParallel(nn.Module):
    """Holds the model as the real one does (torch/nn/parallel/distributed.py), and calls it."""

    def __init__(self, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        wrapped.append(type(self).__name__)
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        yield


class DataParallel(DistributedDataParallel):
    """torch/nn/parallel/data_parallel.py on one device: the module itself."""


class _Done:
    """torch.distributed.Work of a collective that is over."""

    def wait(self, *args: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


def launched_by_torchrun(script: Path, world_size: int) -> bool:
    """Whether a script expects torchrun's or DeepSpeed's environment: it joins a process group by itself.

    A mesh of devices joins one as well, and Lightning's Trainer where it has several. For several ranks a project's own
    modules count too: its trainer joins them, and the script only starts it.
    """
    try:
        text = script.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    if any(word in text for word in _LAUNCHED) or _OF_LIGHTNING.search(text) is not None:
        return True
    return world_size > 1 and any(word in beside for beside in texts(script)[1:] for word in _LAUNCHED)


def launcher_words(script: Path, arguments: Sequence[str]) -> list[str]:
    """What DeepSpeed's launcher adds to a script's arguments (deepspeed/launcher/launch.py): `--local_rank=0`.

    Only where the script drives the engine by itself and reads that option.
    """
    try:
        text = script.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    reads = "deepspeed.initialize" in text and any(f"{quote}--local_rank{quote}" in text for quote in "'\"")
    given = any(word.partition("=")[0] == "--local_rank" for word in arguments)
    return ["--local_rank=0"] if reads and not given else []


def _refuse_calls(module: Any) -> None:
    """A model whose parts lie in processes that call each other has no step of one rank."""

    def init_rpc(*_: Any, **__: Any) -> None:
        raise InputError("its processes call each other by RPC (torch.distributed.rpc), of which no plan is made")

    module.init_rpc = init_rpc


def _refuse_sharded_state(module: Any) -> None:
    """An optimizer whose state lies in parts on the ranks while all else is whole: no strategy here is that."""

    def optimizer(*_: Any, **__: Any) -> None:
        raise InputError(
            "its ZeroRedundancyOptimizer keeps a part of the state on each rank and everything else whole, of which no"
            " plan is made: the optimizer inside by itself has one, as has --strategy zero1 of the model by name"
        )

    module.ZeroRedundancyOptimizer = optimizer


def _take_launchers(module: Any) -> None:
    """accelerate/launchers.py: what a notebook starts on each device runs here, on one."""

    def launched(function: Any, args: Any = (), *_: Any, **__: Any) -> None:
        function(*args)

    module.notebook_launcher = module.debug_launcher = launched


def _take_sharding(module: Any) -> None:
    module.FullyShardedDataParallel = FullyShardedDataParallel
    module.fully_shard = fully_shard
    module.FSDPModule = taken(module.FSDPModule)


def _refuse_tensor_parallel(module: Any) -> None:
    """Layers whose matrices lie in parts on several ranks: a step of theirs is not that of the whole model."""

    def parallelize_module(*_: Any, **__: Any) -> None:
        raise InputError(
            "it shards its layers over a mesh by tensor parallel itself (parallelize_module), which a capture does not"
            " follow: plan the model by name with --tp"
        )

    module.parallelize_module = parallelize_module


@contextlib.contextmanager
def one_rank(world_size: int, script: Path, started: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Within, a script that joins a process group is rank 0 of `world_size`; `started` is called where it starts the
    ranks itself."""
    if launched_by_torchrun(script, world_size):
        os.environ.update(
            RANK="0",
            LOCAL_RANK="0",
            GROUP_RANK="0",
            WORLD_SIZE=str(world_size),
            LOCAL_WORLD_SIZE=str(world_size),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT="29500",
        )
    dist = torch.distributed
    init = dist.init_process_group

    def init_process_group(*args: Any, **kwargs: Any) -> None:
        # Imported here: it is a testing module of torch, and only such scripts need it.
        from torch.testing._internal.distributed.fake_pg import FakeStore

        if not dist.is_initialized():
            init(backend="fake", rank=0, world_size=world_size, store=FakeStore())

    def silent(*args: Any, **kwargs: Any) -> Any:
        return _Done() if kwargs.get("async_op") else None

    def gathered(objects: list[Any], value: Any, *args: Any, **kwargs: Any) -> None:
        objects[:] = [value] * len(objects)

    def spawned(function: Any, args: Any = (), *_: Any, **__: Any) -> None:
        started()
        function(0, *args)  # torch/multiprocessing/spawn.py: the first of its processes

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(torch.multiprocessing, "spawn", spawned))
        stack.enter_context(ranks_started_here(started))
        for home in (dist, *filter(None, map(sys.modules.get, _JOINING))):
            if hasattr(home, "init_process_group"):
                stack.enter_context(mock.patch.object(home, "init_process_group", init_process_group))
        for name in _SILENT:
            if hasattr(dist, name):
                stack.enter_context(mock.patch.object(dist, name, silent))
        for name, answer in (("all_gather_object", gathered), ("broadcast_object_list", silent)):
            stack.enter_context(mock.patch.object(dist, name, answer))
        for home in (nn.parallel, nn.parallel.distributed):
            stack.enter_context(mock.patch.object(home, "DistributedDataParallel", DistributedDataParallel))
        for whole in (nn, nn.parallel):
            stack.enter_context(mock.patch.object(whole, "DataParallel", DataParallel))
        when_imported("torch.distributed.fsdp", _take_sharding)
        when_imported("torch.distributed.tensor", lambda home: answer_for(home, users_own))
        when_imported("accelerate.launchers", _take_launchers)
        when_imported("accelerate.parallelism_config", lambda home: take_degrees(home, world_size))
        when_imported("accelerate.utils.dataclasses", take_plugin)
        when_imported("torch.distributed.rpc", _refuse_calls)
        when_imported("torch.distributed.optim", _refuse_sharded_state)
        when_imported("torch.distributed.tensor.parallel", _refuse_tensor_parallel)
        yield
