"""Values that follow from the inputs are the true ones; everything else stays unknown."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.trace.inputs import known as known_values
from gpu_plan.planner.trace.inputs.batch import training_batch
from gpu_plan.planner.trace.inputs.known import KnownValues, remember_literals
from gpu_plan.planner.trace.inputs.meta_ops import META_OPS
from gpu_plan.planner.trace.kernels.temporaries import CudaProfile
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Stack
from tests.support.operators import Operators
from tests.support.option_pairs import LLAMA


@contextmanager
def following() -> Iterator[KnownValues]:
    known = KnownValues()
    with Operators(known), remember_literals(known), torch.device("meta"):
        yield known


def test_shapes_that_follow_from_the_hosts_own_values_stay_on_the_host() -> None:
    """trl trainer/sft_trainer.py: a collator's boundaries of packed samples, joined with another host tensor."""
    with Operators(KnownValues()):
        positions = torch.tensor([0, 1, 2, 0, 1], device="cpu")
        starts = (positions == 0).nonzero().flatten()
        edges = torch.cat([starts, torch.tensor([5], device="cpu")])
        assert edges.device.type == "cpu"
        assert edges.tolist() == [0, 3, 5]
        assert positions[positions > 0].tolist() == [1, 2, 1]


def test_arithmetic_views_and_changes_in_place() -> None:
    with following():
        grid = torch.tensor([[1, 4, 6], [1, 2, 2]])
        lengths = torch.repeat_interleave(grid[:, 1] * grid[:, 2], grid[:, 0])
        edges = F.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0), value=0)
        assert edges.tolist() == [0, 24, 28]
        table = torch.zeros(3, 4, dtype=torch.long)
        row = table[1]
        row[2:] = 7
        row += 1
        assert table.tolist() == [[0, 0, 0, 0], [1, 1, 8, 8], [0, 0, 0, 0]]
        assert table.nonzero().shape == (4, 2)
        assert torch.unique_consecutive(torch.tensor([1, 1, 2, 2, 1])).tolist() == [1, 2, 1]
        assert (row == 8).any().item() is True
        assert table.max() == 8


def test_boolean_indices_have_the_shape_of_their_values() -> None:
    with following():
        hidden = torch.empty(2, 5, 8)
        mask = torch.arange(10).view(2, 5) % 3 == 0
        assert hidden[mask].shape == (4, 8)
        assert hidden.masked_select(mask.unsqueeze(-1)).shape == (32,)
        hidden[mask] = 0.0


def test_weights_and_random_numbers_are_never_known() -> None:
    with following() as known:
        assert known.get(torch.randint(0, 9, (4,))) is None
        assert known.get(torch.empty(4, dtype=torch.long)) is None
        assert known.get(torch.randn(4, 4).argmax(-1)) is None


def test_what_an_unknown_value_overwrites_is_forgotten() -> None:
    with following() as known:
        counts = torch.zeros(4, dtype=torch.long)
        assert known.get(counts) is not None
        counts[1:2].copy_(torch.randn(3, 1).argmax(0))
        assert known.get(counts) is None
        with pytest.raises((RuntimeError, NotImplementedError)):
            counts.tolist()


def test_literals_may_hold_known_tensors() -> None:
    with following():
        largest = torch.arange(5).max() + 1
        assert torch.tensor([largest, 3]).tolist() == [5, 3]


def test_freed_storages_do_not_lend_their_values_to_new_ones() -> None:
    with following() as known:
        for _ in range(200):
            torch.arange(7)
            assert known.get(torch.empty(7, dtype=torch.long)) is None


@pytest.mark.parametrize("width", [40, 37])
def test_grouped_products_are_shaped_as_the_real_kernels_are(width: int) -> None:
    tokens, experts, hidden = 24, 3, 32
    grouped: Any = torch.ops.aten._grouped_mm.default
    a = torch.randn(tokens, hidden, dtype=torch.bfloat16)
    b = torch.randn(experts, width, hidden, dtype=torch.bfloat16).transpose(-2, -1)
    offs = torch.tensor([8, 16, 24], dtype=torch.int32)
    real = grouped(a, b, offs)
    fake = META_OPS[grouped](a.to("meta"), b.to("meta"), offs.to("meta"))
    assert (fake.shape, fake.dtype) == (real.shape, real.dtype)
    weights = grouped(a.t(), real, offs)
    fake_weights = META_OPS[grouped](a.t().to("meta"), fake, offs.to("meta"))
    assert fake_weights.shape == weights.shape == (experts, hidden, width)


def test_ctc_loss_is_shaped_as_the_real_kernels_are() -> None:
    log_probs = torch.randn(20, 2, 9).log_softmax(-1)
    targets, lengths = torch.randint(1, 9, (12,)), torch.tensor([20, 20])
    op: Any = torch.ops.aten._ctc_loss.Tensor
    real = op(log_probs, targets, lengths, torch.tensor([6, 6]), 0, False)
    fake = META_OPS[op](log_probs.to("meta"), targets.to("meta"), lengths.to("meta"), None, 0, False)
    assert [tuple(t.shape) for t in fake] == [tuple(t.shape) for t in real]


def test_twins_of_what_is_gone_go_too() -> None:
    """A mask of each layer is known while it stands, not until the step ends."""
    known = KnownValues()
    kept = known.made(torch.arange(4))
    for _ in range(40):
        known.made(torch.zeros(1 << 20))
    assert sum(twin.nbytes() for _, twin in known._twins.values()) <= known_values._SWEPT_AFTER + (8 << 20)
    assert torch.equal(known.get(kept), torch.arange(4))


def test_a_recorded_step_keeps_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorders stand in cycles and wait for the collector; masks of thirty steps took four gigabytes meanwhile."""
    made: list[KnownValues] = []

    def noted(self: KnownValues) -> None:
        begin(self)
        made.append(self)

    begin = KnownValues.__init__
    monkeypatch.setattr(KnownValues, "__init__", noted)
    model = build_model(LLAMA)
    tracer = Tracer(
        model=model,
        make_batch=lambda model, size, length: training_batch(model, batch=size, seq_len=length),
        profile=CudaProfile(),
        has_sequence=True,
    )
    variant = StepVariant(
        regime=Regime(weights="float32"),
        checkpointing=Checkpointing.NONE,
        attention=Attention.SDPA,
        stack=Stack.ACCELERATE,
        seq_len=8,
    )
    assert tracer.trace(variant, 1).modules
    assert made
    assert all(known._twins == {} for known in made)


def test_who_chose_an_expert_is_known_of_large_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers modeling_dbrx.py: DbrxExperts.forward loops over the experts that were hit; of 32 samples and more
    the choices, one by one, are more than what is followed of masks."""
    monkeypatch.setattr("gpu_plan.planner.trace.inputs.known.MAX_ELEMENTS", 16)
    with following() as known:
        chosen = torch.tensor([[0, 2], [2, 1], [0, 1]])
        mask = F.one_hot(chosen, num_classes=4).permute(2, 1, 0)
        assert mask.numel() > 16
        assert torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero().tolist() == [[0], [1], [2]]
        assert torch.where(mask[2])[1].tolist() == [1, 0]
        apart = torch.arange(24).reshape(3, 8)
        assert known.get(apart >= 8) is None, "a mask of attention is not computed twice"
