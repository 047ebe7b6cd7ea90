"""FSDP2: units, shards, and what stands while they are gathered and reduced."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpu_plan.planner.strategy.fsdp2.units import shard, shared_apart, wrap_units, wrapping_notes
from gpu_plan.planner.strategy.kinds.fsdp import FullyShardedDataParallel
from gpu_plan.planner.trace.events import ModuleLayout, ParameterInfo, StepTrace
from gpu_plan.planner.workload.training import Precision
from tests.support.live_bytes import at_load, at_rest, peak
from tests.support.rank_contexts import small_context
from tests.support.tiny_trace import ACTIVATION, tiny_trace

BATCH = 64
WHOLE = 4096 * 4
"""Elements of one module's weight."""


def chain(count: int = 4, *, element_bytes: int = 4, rows: int = 4096, **layout: object) -> StepTrace:
    trace = tiny_trace([(rows, 4)] * count, element_bytes=element_bytes)
    places = {"blocks": tuple(f"m{i}" for i in range(count)), **layout}
    return replace(trace, layout=ModuleLayout(**places))  # type: ignore[arg-type]


def parameter(name: str, *shape: int) -> ParameterInfo:
    return ParameterInfo(name=name, shape=shape, dtype="float32", trainable=True, module=name.rpartition(".")[0])


def units(names: list[str], **layout: object) -> list[tuple[str, list[str], bool]]:
    trace = replace(chain(), parameters=[parameter(n, 4) for n in names], layout=ModuleLayout(**layout))  # type: ignore[arg-type]
    return [
        (unit.name, [names[index] for index in unit.parameters], unit.reshard_after_forward)
        for unit in wrap_units(trace, True)
    ]


def test_units_of_a_decoder() -> None:
    names = ["embed.w", "layers.0.a.w", "layers.1.a.w", "norm.w", "head.w"]
    places = {"blocks": ("layers.0", "layers.1"), "input_embedding": "embed", "final_norm": "norm"}
    assert units(names, output_embedding="head", **places) == [
        ("layers.0", ["layers.0.a.w"], True),
        ("layers.1", ["layers.1.a.w"], True),
        ("embed", ["embed.w"], True),
        ("tail", ["norm.w", "head.w"], False),
    ]
    # Tied weights go to the tail, behind the norm; what nobody owns stays with the root.
    tied = units([*names[:-1], "scale"], output_embedding="head", tied=True, **places)
    assert tied[2:] == [("tail", ["norm.w", "embed.w"], False), ("", ["scale"], False)]


def test_a_parameter_of_two_groups_is_told_for_torch_refuses_it() -> None:
    names = ["embed.w", "layers.0.a.w", "norm.w"]
    places = {"blocks": ("layers.0",), "input_embedding": "embed", "output_embedding": "head", "tied": True}

    def trace(*shared: str) -> StepTrace:
        layout = ModuleLayout(final_norm="norm", shared=shared, **places)  # type: ignore[arg-type]
        return replace(chain(), parameters=[parameter(n, 4) for n in names], layout=layout)

    assert (
        shared_apart(trace()) == shared_apart(trace("embed head")) == shared_apart(trace("layers.0 layers.0.a")) == ()
    )
    assert wrapping_notes(trace("embed head")) == ()
    assert shared_apart(trace("layers.0 layers.0.a", "embed encoder.words head")) == ("embed", "encoder.words")
    assert "another FSDP group" in wrapping_notes(trace("embed encoder.words head"))[0]


def test_a_module_s_own_parameters_come_after_its_children_s() -> None:
    ((_, ours, _),) = units(["b.own", "b.mix.own", "b.mix.conv.w", "b.norm.w"], blocks=("b",))
    assert ours == ["b.mix.conv.w", "b.mix.own", "b.norm.w", "b.own"]


def test_a_block_that_holds_the_embedding_is_not_wrapped() -> None:
    names = ["emb.words.w", "emb.norm.w", "layers.0.w", "head.w"]
    places = {"blocks": ("emb", "layers.0"), "input_embedding": "emb.words"}
    assert [unit[:2] for unit in units(names, **places)] == [
        ("layers.0", ["layers.0.w"]),
        ("emb.words", ["emb.words.w"]),
        ("", ["emb.norm.w", "head.w"]),
    ]
    held = chain(input_embedding="m0.words")
    assert FullyShardedDataParallel().rank(small_context(chain())).notes == ()
    (note,) = FullyShardedDataParallel().rank(small_context(held)).notes
    assert "without that of m0" in note


@given(st.integers(1, 300), st.integers(1, 5), st.integers(1, 64))
def test_shards_make_the_whole_and_its_padding(rows: int, width: int, world: int) -> None:
    sharding = shard(parameter("w", rows, width), world)
    assert sharding.unsharded_numel == world * sharding.shard_numel
    assert 0 <= sharding.unsharded_numel - rows * width < world * width


def test_a_rank_keeps_shards_and_their_state() -> None:
    stream = FullyShardedDataParallel().rank(small_context(chain(rows=10))).stream
    shards = 4 * 3 * 4  # four weights of ten rows: three to a rank
    assert at_load(stream) == 4 * shards
    assert at_rest(stream) == [12 * shards + BATCH] * 2


def test_the_previous_all_gather_outlives_the_next_copy_out() -> None:
    stream = FullyShardedDataParallel().rank(small_context(chain())).stream
    shards = 4 * WHOLE  # four quarters, in bytes
    # Entering the last block: two all-gather outputs and the unsharded weight.
    assert peak(stream, 1) == shards + BATCH + 3 * ACTIVATION + 3 * 4 * WHOLE


def test_the_last_gradient_outlives_the_reduction() -> None:
    stream = FullyShardedDataParallel().rank(small_context(chain(1))).stream
    quarter = WHOLE  # bytes of a shard in fp32
    # Shard; reduce-scatter input, the gradient itself, and the reduced shard.
    assert peak(stream, 1, backward=True) == quarter + BATCH + 4 * WHOLE + 4 * WHOLE + quarter
    mixed = FullyShardedDataParallel().rank(small_context(chain(1, element_bytes=2), precision=Precision("bf16-mixed")))
    # Half as wide, and the shard in both types while it is cast.
    assert peak(mixed.stream, 1, backward=True) == quarter + BATCH + 2 * WHOLE + 2 * WHOLE + quarter // 2 + quarter


def test_gradients_stand_whole_between_micro_steps() -> None:
    once, twice = (
        FullyShardedDataParallel().rank(small_context(chain(), accumulation_steps=steps)).stream for steps in (1, 2)
    )
    assert at_rest(once) == at_rest(twice)
    assert peak(twice, 2) == peak(once, 1) + 4 * 4 * WHOLE


def test_reshard_after_forward_can_be_switched_off() -> None:
    kept = small_context(chain(), settings=(("fsdp.reshard_after_forward", "false"),))
    ours, theirs = (FullyShardedDataParallel().rank(c).stream for c in (kept, small_context(chain())))
    # Entering the last block, the three before stay whole.
    assert peak(ours, 1) - peak(theirs, 1) == 3 * 4 * WHOLE
    assert at_rest(ours) == at_rest(theirs)


def test_parameters_without_gradient_are_gathered_but_not_stepped() -> None:
    trace = tiny_trace([(8, 4)] * 2, element_bytes=4, frozen=[0])
    unused = replace(trace, parameters=[replace(p, trainable=True) for p in trace.parameters])
    stream = FullyShardedDataParallel().rank(small_context(unused)).stream
    assert at_rest(stream) == [2 * 32 + 2 * 32 + BATCH] * 2
