"""What FSDP2's hooks issue around a unit: counted in torch's own, in one process of a fake group of eight."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from gpu_plan.planner.strategy.fsdp2.collectives import _GATHERING, _REDUCING

LAYERS, WIDTH = 4, 16
SHAPES = ("view", "as_strided", "split_with_sizes", "_record_function_enter_new", "_record_function_exit")
"""What launches no kernel; the split here gives views of the shards."""


class _Counted(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names[func._schema.name.partition("::")[2]] += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    yield
    dist.destroy_process_group()


def _issued(parameters: int, *, sharded: bool) -> tuple[Counter[str], Counter[str]]:
    """Operators of the second iteration, forward and backward."""
    blocks = [nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(parameters))) for _ in range(LAYERS)]
    model = nn.Sequential(*blocks)
    if sharded:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for module in (*blocks, model):
            fully_shard(module, mp_policy=policy)
    found = Counter(), Counter()
    for _ in range(2):
        with _Counted() as forward:
            loss = model(torch.zeros(2, WIDTH)).float().sum()
        with _Counted() as backward:
            loss.backward()
        model.zero_grad(set_to_none=True)
        found = forward.names, backward.names
    return found


@pytest.mark.parametrize("parameters", [2, 7])
def test_counts_of_a_unit(group: None, parameters: int) -> None:
    """The root, which has no parameters here, and casts of inputs add a few in all."""
    plain, hooked = (_issued(parameters, sharded=sharded) for sharded in (False, True))
    for phase, fewest, most in (
        (0, _GATHERING[0], _GATHERING[1] + parameters),
        (1, _GATHERING[0] + _REDUCING[0], _GATHERING[1] + _REDUCING[1] + 2 * parameters),
    ):
        more = hooked[phase] - plain[phase]
        kernels = sum(count for name, count in more.items() if name not in SHAPES)
        assert kernels / LAYERS == pytest.approx(fewest, abs=1)
        assert sum(more.values()) / LAYERS == pytest.approx(most, abs=3)
