"""FSDP1 under CPUOffload as torch runs it, on a fake process group: what it casts when, and what it keeps on the host.

Pinning needs a GPU: a copy stands for it. A CPU's streams cannot be waited for: nothing is waited for.
"""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel, MixedPrecision, _runtime_utils
from torch.distributed.fsdp._flat_param import FlatParamHandle
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.accuracy.test_fsdp1_limiter import _WORDS, _Model
from tests.support.live_bytes import labelled
from tests.unit.strategy.test_strategy_fsdp1 import blocks
from tests.unit.strategy.test_strategy_fsdp1_offload import offloaded
from tests.unit.strategy.test_waiting_blocks import LAYERS, TALL

ROOT, BLOCK = "root", "block"


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    yield
    dist.destroy_process_group()


def wrapped(model: _Model) -> FullyShardedDataParallel:
    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=lambda module, recurse, nonwrapped_numel: recurse or module in set(model.layers),
        use_orig_params=True,
        device_id=torch.device("cpu"),
        cpu_offload=CPUOffload(offload_params=True),
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
    )


def handles(model: nn.Module) -> list[FlatParamHandle]:
    return [one._handle for one in FullyShardedDataParallel.fsdp_modules(model) if one._handle is not None]


@pytest.mark.slow
def test_shards_are_cast_and_gradients_stand_as_in_the_replay(group: None, monkeypatch: pytest.MonkeyPatch) -> None:
    cast: list[str] = []
    standing: list[int] = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", torch.Tensor.clone)
    monkeypatch.setattr(torch.cpu.Stream, "synchronize", lambda self: None, raising=False)
    casting, finalising = FlatParamHandle._use_low_precision_shard, _runtime_utils._finalize_params

    def recorded(self: FlatParamHandle) -> None:
        cast.append(BLOCK if isinstance(self._fully_sharded_module, nn.Linear) else ROOT)
        casting(self)

    def counted(state: FullyShardedDataParallel) -> None:
        standing.append(sum(hasattr(one.flat_param, "_saved_grad_shard") for one in handles(model)))
        finalising(state)

    monkeypatch.setattr(FlatParamHandle, "_use_low_precision_shard", recorded)
    monkeypatch.setattr(_runtime_utils, "_finalize_params", counted)
    inner = _Model()
    inner.layers[0].requires_grad_(False)
    model = wrapped(inner)
    for _ in range(2):
        model(torch.randint(0, _WORDS, (2, 4))).sum().backward()
        for parameter in model.parameters():
            parameter.grad = None
    # Of eight layers and the root all but the frozen one keep a reduced gradient until the callback behind backward.
    assert standing[0] == LAYERS
    assert not any(hasattr(one.flat_param, "_saved_grad_shard") for one in handles(model))
    assert all(one.flat_param._cpu_grad.shape == one.flat_param._local_shard.shape for one in handles(model))
    stream = offloaded(trace=blocks(TALL)).stream
    sizes = [size for _, sign, size in labelled(stream, "low-precision shard") if sign > 0]
    assert cast == [BLOCK if size == max(sizes) else ROOT for size in sizes]
