"""Groups of ranks that share a copy of the model have their own samples, in accelerate's real loader and schedule."""

import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import data_loader, scheduler
from accelerate.state import AcceleratorState, PartialState
from torch.utils.data import DataLoader, IterableDataset

from gpu_plan.executor.checkpoints.manifest import SPREAD, Manifest
from gpu_plan.executor.runner.parallel.degrees import VARIABLE, Degrees
from gpu_plan.executor.runner.parallel.samples import count_groups, count_replicas_once, read_by_each
from gpu_plan.executor.runner.saving.loads import schedule_pace

GROUPS = Degrees(tp_size=2, fsdp_size=2)
ALONE = Degrees(tp_size=2)


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Any:
        return iter(torch.arange(8))


class Mesh(dict[str, Any]):
    """Two groups of two ranks, as a mesh names them."""

    mesh_dim_names = ("dp_shard", "tp")


MESH = Mesh(dp_shard=SimpleNamespace(size=lambda: 2), tp=SimpleNamespace(size=lambda: 2))


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Loaders as one rank of four gets them under some degrees."""
    PartialState(cpu=True)
    said: list[str] = []

    def prepare(rank: int, degrees: Degrees | None, dataset: Any, **words: Any) -> Any:
        module = SimpleNamespace(prepare_data_loader=data_loader.prepare_data_loader, IterableDataset=IterableDataset)
        if degrees is not None:
            read_by_each(module, degrees, said.append)
        loader = DataLoader(dataset, batch_size=2)
        return module.prepare_data_loader(
            loader, num_processes=4, process_index=rank, put_on_device=True, torch_device_mesh=MESH, **words
        )

    prepare.said = said  # type: ignore[attr-defined]
    yield prepare
    AcceleratorState._reset_state(True)
    PartialState._reset_state()


def test_a_data_set_that_is_iterated_is_shared_out_among_groups(prepared: Any) -> None:
    own = prepared(0, None, Stream())
    assert isinstance(own, data_loader.DataLoaderDispatcher), "accelerate dispatches it no longer: is it mended there?"
    seen = [[batch.tolist() for batch in prepared(rank, GROUPS, Stream())] for rank in range(4)]
    assert seen[0] == seen[1] == [[0, 1], [4, 5]]
    assert seen[2] == seen[3] == [[2, 3], [6, 7]]
    assert "each rank reads" in prepared.said[0]


def test_one_group_may_be_given_its_batches(prepared: Any) -> None:
    assert isinstance(prepared(0, ALONE, Stream()), data_loader.DataLoaderDispatcher)


@pytest.mark.parametrize(
    ("degrees", "words"),
    [(GROUPS, {"dispatch_batches": True}), (ALONE, {"dispatch_batches": True, "split_batches": True})],
)
def test_what_would_give_groups_each_others_samples_is_refused(
    prepared: Any, degrees: Degrees, words: dict[str, bool]
) -> None:
    with pytest.raises(RuntimeError, match="dispatch_batches=True is not for"):
        prepared(0, degrees, range(8), **words)


def test_a_schedule_counts_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "AcceleratorState", scheduler.AcceleratorState)
    count_groups(scheduler, GROUPS)
    PartialState(cpu=True)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    optimizer.step_was_skipped = False  # type: ignore[attr-defined]
    inner = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda at: 1.0)
    optimizer.step()
    scheduler.AcceleratedScheduler(inner, optimizer).step()
    assert inner.last_epoch == GROUPS.data_parallel == 2
    PartialState._reset_state()


def test_a_checkpoint_says_how_its_schedules_were_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = SimpleNamespace(num_processes=4)
    assert schedule_pace(ranks) == 4
    monkeypatch.setenv(VARIABLE, '{"tp_size": 2, "fsdp_size": 2}')
    assert schedule_pace(ranks) == 2
    saved = Manifest(step=1, stack="accelerate", layout=SPREAD, strategy="fsdp_tp", world_size=4, created=0.0)
    assert saved.pace == 4  # of a version that counted ranks


def test_a_trainer_is_told_of_replicas_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts HSDP's replicas among `dp_shard_size`; Accelerate would take them from the environment again."""
    name = "PARALLELISM_CONFIG_DP_REPLICATE_SIZE"
    monkeypatch.setenv(name, "2")
    seen = []

    class Trainer:
        def create_accelerator_and_postprocess(self) -> None:
            seen.append(os.environ.get(name))

    count_replicas_once(SimpleNamespace(Trainer=Trainer))
    Trainer().create_accelerator_and_postprocess()
    assert seen == [None]
    assert os.environ[name] == "2"
