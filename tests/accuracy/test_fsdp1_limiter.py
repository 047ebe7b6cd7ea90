"""FSDP1's rate limiter as torch runs it, on a fake process group: the ages of the events that it waits for."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, _init_utils
from torch.distributed.fsdp._limiter_utils import _FreeEventQueue
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.unit.strategy.test_waiting_blocks import LAYERS, limiter_ages

_WIDTH, _WORDS = 16, 50


class _Recorded(_FreeEventQueue):
    """Numbers its events instead of keeping them: nothing runs on a GPU here."""

    ages: list[int | None]

    def enqueue(self, free_event: torch.Event) -> None:
        self._queue.append(free_event)

    def dequeue_if_needed(self) -> None:
        taken = len(self._queue) if len(self._queue) >= self._max_num_inflight_all_gathers else None
        super().dequeue_if_needed()
        _Recorded.ages.append(taken)


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(_WORDS, _WIDTH)
        self.layers = nn.ModuleList(nn.Linear(_WIDTH, _WIDTH) for _ in range(LAYERS))
        self.head = nn.Linear(_WIDTH, _WORDS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = hidden + torch.relu(layer(hidden))
        logits: torch.Tensor = self.head(hidden)
        return logits


@pytest.mark.slow
def test_the_replay_waits_for_the_events_that_torch_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    _Recorded.ages = []
    monkeypatch.setattr(_init_utils, "_FreeEventQueue", _Recorded)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    try:
        model = _Model()
        wrapped = FullyShardedDataParallel(
            model,
            auto_wrap_policy=lambda module, recurse, nonwrapped_numel: recurse or module in set(model.layers),
            use_orig_params=True,
            device_id=torch.device("cpu"),
        )
        for _ in range(2):
            wrapped(torch.randint(0, _WORDS, (2, 4))).sum().backward()
    finally:
        dist.destroy_process_group()
    assert _Recorded.ages == limiter_ages(monkeypatch)
