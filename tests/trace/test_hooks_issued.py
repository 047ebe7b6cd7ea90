"""What the hooks of DDP, FSDP1 and ZeRO issue: counted in their own, in one process of a group that sends nothing."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from gpu_plan.planner.strategy.buckets import _issued as of_bucket
from gpu_plan.planner.strategy.fsdp1.collectives import REDUCING as REDUCING_FLAT
from gpu_plan.planner.strategy.fsdp1.collectives import gathering as gathering_flat
from gpu_plan.planner.strategy.zero.stage3.traffic import gathering, reducing
from gpu_plan.planner.strategy.zero.stage12.rank import _issued as of_partitions

LAYERS, WIDTH, RANKS = 4, 16, 8
KERNELS = {"_to_copy", "add", "allgather_", "_allgather_base_", "allreduce_", "cat", "copy_", "div", "div_", "empty",
           "empty_like", "mul", "mul_", "_reduce_scatter_base_", "zero_", "fill_"}  # fmt: skip
"""Of what is issued here: what fills memory or sends it. The others change shapes, or name spans for a profiler."""


class _Counted(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names[func._schema.name.partition("::")[2]] += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture(params=[RANKS])
def group(request: pytest.FixtureRequest) -> Iterator[None]:
    """Of so many ranks; one rank of gloo's where the reducer wants an answer."""
    if request.param == 1:
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    else:
        dist.init_process_group("fake", rank=0, world_size=request.param, store=FakeStore())
    yield
    dist.destroy_process_group()


def _model(parameters: int) -> nn.Sequential:
    return nn.Sequential(
        *(nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(parameters))) for _ in range(LAYERS))
    )


def _issued(model: Any, engine: Any = None, dtype: torch.dtype = torch.float32) -> tuple[Counter[str], Counter[str]]:
    """Operators of the third iteration, forward and backward."""
    found = Counter[str](), Counter[str]()
    for _ in range(3):
        with _Counted() as forward:
            loss = model(torch.zeros(2, WIDTH, dtype=dtype)).float().sum()
        with _Counted() as backward:
            loss.backward() if engine is None else engine.backward(loss)
        model.zero_grad(set_to_none=True) if engine is None else engine.step()
        found = forward.names, backward.names
    return found


def _more(hooked: Counter[str], plain: Counter[str]) -> tuple[int, int]:
    """Kernels, and all, that hooks have added."""
    found = Counter(hooked)
    found.subtract(plain)
    return sum(count for name, count in found.items() if name in KERNELS), sum(found.values())


@pytest.mark.parametrize("group", [1], indirect=True)
@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("parameters", [2, 7])
def test_a_bucket_of_ddp(group: None, parameters: int, views: bool) -> None:
    plain = _issued(_model(parameters))
    megabytes = parameters * WIDTH**2 * 4 / 2**20
    wrapped = nn.parallel.DistributedDataParallel(
        _model(parameters), bucket_cap_mb=megabytes, gradient_as_bucket_view=views
    )
    hooked = _issued(wrapped)
    kernels, issued = _more(hooked[1], plain[1])
    fewest, most = of_bucket(parameters, views=views)
    assert kernels / LAYERS == pytest.approx(fewest, abs=1)
    assert issued / LAYERS == pytest.approx(most, abs=parameters / 2)


@pytest.mark.parametrize("parameters", [2, 7])
def test_a_unit_of_fsdp1(group: None, parameters: int) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision

    plain = _issued(_model(parameters))
    mixed = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    options: dict[str, Any] = {"mixed_precision": mixed, "use_orig_params": True, "device_id": torch.device("cpu")}
    model = _model(parameters)
    for index, block in enumerate(model):
        model[index] = FullyShardedDataParallel(block, **options)
    hooked = _issued(FullyShardedDataParallel(model, **options))
    gathering, reducing = gathering_flat(parameters), REDUCING_FLAT
    for phase, fewest, most in (
        (0, gathering[0], gathering[1]),
        (1, gathering[0] + reducing[0], gathering[1] + reducing[1]),
    ):
        kernels, issued = _more(hooked[phase], plain[phase])
        # Gathers of gloo put a list together, which NCCL's do not.
        assert kernels / LAYERS == pytest.approx(fewest, abs=1)
        assert issued / LAYERS == pytest.approx(most, abs=5)


def _zero(parameters: int, stage: int, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    deepspeed = pytest.importorskip("deepspeed")
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setattr("deepspeed.comm.comm.cdb", None)
    monkeypatch.setattr("deepspeed.utils.groups._WORLD_GROUP", None)
    model = _model(parameters).bfloat16()
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
        "zero_optimization": {"stage": stage, **options},
    }
    return deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=config)[0]


@pytest.mark.slow
@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("parameters", [2, 7])
def test_a_bucket_of_zero_1_and_2(group: None, parameters: int, stage: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = _issued(_model(parameters).bfloat16(), dtype=torch.bfloat16)
    engine = _zero(parameters, stage, monkeypatch, overlap_comm=False)
    kernels, issued = _more(_issued(engine, engine, torch.bfloat16)[1], plain[1])
    fewest, most = of_partitions(parameters * LAYERS)
    # The loss is scaled and cast; parameters that lie in the partitions of two ranks are cut there.
    assert kernels == pytest.approx(fewest, abs=8)
    assert issued == pytest.approx(most, rel=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("parameters", [2, 7])
def test_a_gather_and_a_bucket_of_zero_3(
    group: None, parameters: int, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = _issued(_model(parameters).bfloat16(), dtype=torch.bfloat16)
    every = LAYERS * parameters
    prefetched = every * WIDTH**2 if together else 0
    engine = _zero(
        parameters, 3, monkeypatch, stage3_param_persistence_threshold=0, stage3_prefetch_bucket_size=prefetched
    )
    forward, backward = _issued(engine, engine, torch.bfloat16)
    one, reduced = gathering(1, RANKS), reducing(every, RANKS)
    ahead = gathering(every - 1, RANKS) if together else (one[0] * (every - 1), one[1] * (every - 1))
    kernels, issued = _more(forward, plain[0])
    assert kernels == pytest.approx(ahead[0] + one[0], rel=0.15, abs=4)
    assert issued == pytest.approx(ahead[1] + one[1], rel=0.15, abs=4)
    # So few parameters are not released between forward and backward: nothing is gathered again.
    kernels, issued = _more(backward, plain[1])
    assert kernels == pytest.approx(reduced[0], rel=0.15)
    assert issued == pytest.approx(reduced[1], rel=0.15)
