"""`--checkpointing selective` and `--set checkpoint.every`: what is read, searched, and told."""

import pytest

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.options.settings import parse_settings
from gpu_plan.planner.options.training.reading import read_given
from gpu_plan.planner.search.training.candidates import families
from gpu_plan.planner.search.training.notes.checkpointing import (
    checkpoint_every,
    checkpointing_notes,
    is_reentrant,
    reentrant_notes,
)
from gpu_plan.planner.search.training.relaxed import relaxed
from gpu_plan.planner.trace.kernels.saved_operators import SAVED_OPERATORS
from gpu_plan.planner.workload.training import Attention, Checkpointing, Optimizer, Precision, Stack, Workload


def workload(
    *settings: str,
    checkpointing: Checkpointing | None = None,
    stack: Stack = Stack.ACCELERATE,
    attention: Attention = Attention.SDPA,
) -> Workload:
    return Workload(
        seq_len=64,
        precision=Precision("bf16"),
        optimizer=Optimizer("adamw"),
        attention=attention,
        stack=stack,
        checkpointing=checkpointing,
        settings=parse_settings(settings),
    )


def test_selective_is_read() -> None:
    assert read_given({"checkpointing": "Selective"}, ()).checkpointing is Checkpointing.SELECTIVE


@pytest.mark.parametrize("value", ["0", "-1", "2.5", "two", ""])
def test_a_distance_is_a_whole_number_from_one_on(value: str) -> None:
    with pytest.raises(UsageError, match=r"checkpoint\.every"):
        parse_settings([f"checkpoint.every={value}"])


def test_a_distance_needs_checkpointing() -> None:
    with pytest.raises(UsageError, match="nothing is checkpointed"):
        read_given({"checkpointing": "none"}, ["checkpoint.every=2"])
    assert read_given({"checkpointing": "full"}, ["checkpoint.every=2"]).settings == (("checkpoint.every", "2"),)


def test_selective_is_tried_only_when_it_is_asked_for() -> None:
    def tried(checkpointing: Checkpointing | None) -> set[Checkpointing]:
        found = families(workload(checkpointing=checkpointing), parse_cluster("8xH100"), True)
        return {family.checkpointing for family in found}

    assert tried(None) == {Checkpointing.NONE, Checkpointing.FULL}
    assert tried(Checkpointing.SELECTIVE) == {Checkpointing.SELECTIVE}
    with pytest.raises(UsageError, match="does not support"):
        list(families(workload(checkpointing=Checkpointing.SELECTIVE), parse_cluster("8xH100"), False))


def test_the_distance_says_nothing_where_nothing_is_checkpointed() -> None:
    job = workload("checkpoint.every=3")
    assert checkpoint_every(Checkpointing.NONE, job) == 1
    assert checkpoint_every(Checkpointing.FULL, job) == 3
    assert checkpointing_notes(Checkpointing.NONE, job) == ()


def test_reentrant_checkpoints_are_followed_where_each_rank_computes_the_whole_model() -> None:
    job = workload("checkpoint.reentrant=true", checkpointing=Checkpointing.FULL)
    found = {
        family.strategy.name: family
        for family in families(job, parse_cluster("8xH100"), True)
        if family.copy_ranks == 1
    }
    followed = {name for name, family in found.items() if is_reentrant(family, job)}
    assert followed == found.keys() & {"ddp", "zero1", "zero2"}
    assert "ddp" in followed
    (how,) = reentrant_notes(found["ddp"], job)
    assert '"use_reentrant": True' in how
    (otherwise,) = reentrant_notes(found["fsdp"], job)
    assert "counted as those that are not reentrant" in otherwise
    assert not is_reentrant(found["ddp"], workload(checkpointing=Checkpointing.FULL))


def test_a_stack_s_own_checkpoints_are_reentrant_unless_told_otherwise() -> None:
    """LLaMA-Factory's `use_reentrant_gc` is on."""
    own = workload(stack=Stack("llama-factory"), checkpointing=Checkpointing.FULL)
    other = workload("checkpoint.reentrant=false", stack=Stack("llama-factory"), checkpointing=Checkpointing.FULL)
    found = {
        family.strategy.name: family
        for family in families(own, parse_cluster("8xH100"), True)
        if family.copy_ranks == 1
    }
    assert is_reentrant(found["ddp"], own)
    assert not is_reentrant(found["ddp"], other)
    (said,) = reentrant_notes(found["zero3"], own)
    assert said.startswith("stack llama-factory: checkpoints of ZeRO-3")


def test_reentrant_checkpoints_are_full_ones() -> None:
    for other in ("none", "selective"):
        with pytest.raises(UsageError, match=r"checkpoint\.reentrant=true needs --checkpointing full"):
            read_given({"checkpointing": other}, ["checkpoint.reentrant=true"])


def test_what_the_launcher_cannot_do_is_told_as_code() -> None:
    assert checkpointing_notes(Checkpointing.FULL, workload()) == ()
    (every,) = checkpointing_notes(Checkpointing.FULL, workload("checkpoint.every=2"))
    assert "gradient_checkpointing_enable(every_n_layers=2)" in every
    assert checkpointing_notes(Checkpointing.FULL, workload("checkpoint.every=2", stack=Stack.TRAINER)) == ()
    (selective,) = checkpointing_notes(Checkpointing.SELECTIVE, workload())
    assert all(f"aten.{name}.default" in selective for name in SAVED_OPERATORS if "attention_forward" not in name)
    assert "every_n_layers" not in selective
    assert "flash_attn" not in selective
    (flash,) = checkpointing_notes(Checkpointing.SELECTIVE, workload("checkpoint.every=2", attention=Attention.FLASH))
    assert "torch.ops.flash_attn._flash_attn_forward.default" in flash
    assert "every_n_layers=2" in flash


def test_full_is_the_change_from_selective_and_from_a_distance() -> None:
    for job, expected in (
        (workload("checkpoint.every=2", checkpointing=Checkpointing.SELECTIVE), "--checkpointing full"),
        (workload("checkpoint.every=2", checkpointing=Checkpointing.FULL), "--set checkpoint.every=1"),
    ):
        words, changed = next(iter(relaxed(job, True, False)))
        assert (words, changed.checkpointing) == (expected, Checkpointing.FULL)
        assert changed.setting("checkpoint.every", "1") == "1"
