"""The whole step: by hand where a hand can, by order where it cannot."""

import math
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.hardware.catalog import load_gpus
from gpu_plan.planner.hardware.cluster import Cluster, parse_cluster
from gpu_plan.planner.speed.collectives import call_seconds
from gpu_plan.planner.speed.model import Collective, Layers, OptimizerWork, SpeedModel, StepTime, StepWork
from gpu_plan.planner.speed.rates import efficiency_data, kernel_overhead_seconds
from gpu_plan.planner.speed.roofline import RooflineModel
from gpu_plan.planner.trace.events import StepTrace
from tests.support.calls import calls_of
from tests.support.synthetic_trace import Op, decoder_trace, trace_of

MODEL: SpeedModel = RooflineModel()
NOTHING = OptimizerWork(parameter_bytes_read_written=0)
H100 = parse_cluster("1xH100")
HOST = 12.2e-6 * 4.0 / 3.8
"""Expected host seconds per operator of a pass without gradients: 12.2 us at 4.0 GHz, the same core at 3.8."""
MM_RATE = 720.8e12 * (0.94 + 0.748) / 2
"""Bursts on an H100, and what a training step keeps of them."""
MEMORY_RATE = (2586 + 2621) / 2 * 1e9
WEIGHTS_RATE = 2767e9
"""Of products that wait for their operands."""
BIG = Op(flops=1e15)


def work(trace: StepTrace, **more: Any) -> StepWork:
    given_values: dict[str, Any] = {"micro_batch": 1, "compute_dtype": "bfloat16", "optimizer": NOTHING, **more}
    return StepWork(trace=trace, **given_values)


def step(trace: StepTrace, cluster: Cluster = H100, **more: Any) -> StepTime:
    return MODEL.step_time(work(trace, **more), cluster)


def reduce(overlap: bool, **more: Any) -> Collective:
    values: dict[str, Any] = {
        "kind": "all_reduce", "bytes": 10**9, "phase": "backward", "per": "step", **more
    }  # fmt: skip
    return Collective(overlap=overlap, **values)


def test_a_matrix_product_by_hand() -> None:
    time = step(trace_of(BIG))
    assert time.forward_seconds == pytest.approx(1e15 / MM_RATE + kernel_overhead_seconds(), rel=1e-6)
    assert time.step_seconds == time.forward_seconds
    assert time.mfu == pytest.approx(MM_RATE / 989.5e12, rel=1e-3)
    assert time.basis == "source"


def test_a_copy_by_hand() -> None:
    time = step(trace_of(Op(name="clone", moved=MEMORY_RATE / 2)))
    assert time.forward_seconds == pytest.approx(0.5, rel=2e-3)
    assert time.model_flops == 0


def test_the_longer_of_arithmetic_and_traffic_counts() -> None:
    both = step(trace_of(Op(flops=MM_RATE, moved=10 * WEIGHTS_RATE)))
    assert both.step_seconds == pytest.approx(10.0, rel=2e-3)
    assert any("weights read by products" in note for note in both.notes)
    assert not any("weights read" in note for note in step(trace_of(BIG)).notes)


def test_what_only_allocates_takes_the_device_no_time() -> None:
    copied, allocated = Op(name="clone", moved=MEMORY_RATE / 2), Op(name="empty_like", moved=MEMORY_RATE)
    assert step(trace_of(copied, allocated)).step_seconds == step(trace_of(copied)).step_seconds


def test_rows_that_begin_at_no_multiple_of_sixteen_bytes_are_slower_to_multiply() -> None:
    """GPT-2's vocabulary of 50257, and as it is padded."""

    def time(columns: int) -> StepTime:
        return step(trace_of(Op(flops=1e15, writes=((8, 0),), shapes=(f"[4096, {columns}] bfloat16",))))

    odd, padded = time(50257), time(50304)
    assert odd.step_seconds / padded.step_seconds == pytest.approx(1 / 0.69, rel=1e-3)
    assert odd.low_seconds == pytest.approx(padded.low_seconds)


def test_fp32_matrices_are_multiplied_without_tensor_cores() -> None:
    """989 TFLOP/s of a dense bf16 peak, half as TF32, 67 of fp32."""

    def time(dtype: str) -> StepTime:
        shape = f"[4096, 160] {dtype}"
        return step(trace_of(Op(flops=1e15, writes=((8, 0),), shapes=(shape,), reads=(0,))))

    peak, wide, narrow = load_gpus()["h100-sxm-80"].peak_flops, time("float32"), time("bfloat16")
    assert wide.step_seconds / narrow.step_seconds == pytest.approx(2.0, rel=1e-2)
    assert wide.high_seconds / narrow.high_seconds == pytest.approx(peak["bfloat16"] / peak["float32"], rel=1e-2)
    assert wide.low_seconds == pytest.approx(narrow.low_seconds)


def test_what_only_allocates_takes_the_host_a_part_of_an_operator() -> None:
    launched, found = [Op(name="add", moved=8.0)] * 1000, [Op(name="empty_like", moved=8.0)] * 1000
    more = step(trace_of(*launched, *found)).step_seconds / step(trace_of(*launched)).step_seconds
    assert more == pytest.approx(1.72)


def test_a_host_that_waits_for_every_launch_leaves_the_device_idle() -> None:
    trace = trace_of(*[Op(name="clone", moved=MEMORY_RATE * 1e-4)] * 100)
    beside, after = (
        RooflineModel(blocking=blocking).step_time(work(trace), H100).step_seconds for blocking in (False, True)
    )
    assert after - beside == pytest.approx(100 * HOST)


def test_attention_of_few_heads_takes_longer_a_head() -> None:
    def seconds(heads: int) -> float:
        name = "_scaled_dot_product_cudnn_attention[causal,128]"
        return step(trace_of(Op(name=name, flops=4.0 * heads * 4096**2 * 128))).step_seconds / heads

    assert seconds(8) / seconds(1024) == pytest.approx(1 + 0.55 * 132 * 2 * 128 / 4096 / 8, rel=0.02)


def test_small_operators_wait_for_the_host() -> None:
    time = step(trace_of(*[Op(name="add", moved=8.0)] * 1000))
    assert time.forward_seconds == pytest.approx(1000 * HOST)
    assert any("host issues" in note for note in time.notes)


def test_what_the_host_records_and_which_processor_it_has_count() -> None:
    operators = [Op(name="add", moved=8.0)] * 1000
    backward = [Op(name="add", moved=8.0, phase=1)]
    inferred, trained, again = (
        step(trace_of(*operators, *more)).forward_seconds
        for more in ([], backward, [*backward, replace(backward[0], phase=2)])
    )
    assert trained / inferred == pytest.approx(0.95)
    assert again / inferred == pytest.approx(1.68)
    reentrant = RooflineModel(reentrant=True).step_time(
        work(trace_of(*operators, *backward, replace(backward[0], phase=2))), H100
    )
    assert reentrant.forward_seconds / inferred == pytest.approx(1.13)
    a100 = step(trace_of(*operators), parse_cluster("1xA100-80GB"))
    assert a100.forward_seconds / inferred > 1.3
    assert any("A100-80GB servers" in note for note in a100.notes)
    unknown = step(trace_of(*operators), parse_cluster("1xRTX4090"))
    assert unknown.low_seconds < inferred < unknown.high_seconds / 1.5
    assert any("processor not known" in note for note in unknown.notes)


def test_megatrons_layers_take_the_host_longer_an_operator() -> None:
    operators = [Op(name="add", moved=8.0)] * 1000
    recorded = [*operators, Op(name="add", moved=8.0, phase=1)]
    again = [*recorded, Op(name="add", moved=8.0, phase=2)]
    inferred = step(trace_of(*operators)).forward_seconds
    for found, layers, kind in (
        (recorded, "megatron-core", "megatron_core"),
        (again, "megatron-core", "megatron_core_checkpointed"),
        (recorded, "megatron-deepspeed", "megatron_deepspeed"),
        (again, "megatron-deepspeed", "megatron_deepspeed_checkpointed"),
    ):
        time = RooflineModel(layers=layers).step_time(work(trace_of(*found)), H100)
        row = next(row for row in efficiency_data()["issuing"] if row["kind"] == kind)
        assert time.forward_seconds / inferred == pytest.approx(row["expected"])
        assert any("in Megatron-" in note for note in time.notes)
        said = RooflineModel().step_time(work(trace_of(*found), layers=layers), H100)
        assert said.forward_seconds == time.forward_seconds


def test_ranks_that_share_layers_are_waited_for_while_the_host_issues() -> None:
    """A wait of one stream for another: only what is longer than the device stands idle anyway costs anything."""
    small = trace_of(*[Op(name="add", moved=8.0)] * 1000)

    def exposed(axis: str, nbytes: int, count: int = 100, *, blocking: bool = False) -> float:
        call = Collective(
            kind="all_reduce", bytes=nbytes, count=count, phase="forward", per="micro_step", overlap=False, axis=axis
        )
        time = RooflineModel(blocking=blocking).step_time(work(small, collectives=(call,)), parse_cluster("8xH100"))
        return time.exposed_communication_seconds

    assert exposed("tensor", 2**20) < 1e-9 < exposed("data", 2**20)
    assert exposed("tensor", 2**20, blocking=True) == pytest.approx(exposed("data", 2**20))
    idle = 1000 * (HOST - kernel_overhead_seconds())
    assert exposed("tensor", 2**30) == pytest.approx(exposed("data", 2**30) - idle, rel=1e-2)


def test_megatron_deepspeed_computes_nothing_beside_its_ranks_sums() -> None:
    """Megatron-core computes a weight's gradient meanwhile."""
    long = trace_of(replace(BIG, phase=1))
    call = Collective(
        kind="all_reduce", bytes=2**24, phase="backward", per="micro_step", overlap=False, axis="tensor", products=1e15
    )
    node = parse_cluster("8xH100")

    def exposed(layers: Layers) -> float:
        found = RooflineModel(layers=layers).step_time(work(long, collectives=(call,)), node)
        return found.exposed_communication_seconds

    alone = call_seconds(call, node).expected
    assert exposed("megatron-deepspeed") == pytest.approx(alone)
    assert exposed("megatron-core") == pytest.approx(alone * 16 / 132)  # the multiprocessors that it takes


def test_copies_of_what_lies_apart_are_slow_in_sixteen_bits_alone() -> None:
    def copied(dtype: str, name: str = "clone") -> float:
        trace = trace_of(Op(name=name, moved=4e9, writes=((2 * 10**9, 0),)))
        trace.tensor_shape[0] = f"[1000000000] {dtype}"
        return step(trace, parse_cluster("1xA100-80GB")).forward_seconds

    assert copied("float32") == pytest.approx(copied("bfloat16", "add"))
    # A published kernel of the kind: 506e9 elements of operands a second on an A100.
    assert copied("bfloat16") == pytest.approx(4e9 / 2 / 506e9, rel=1e-2)
    assert copied("bfloat16") > 1.5 * copied("float32")


def test_hooks_cost_the_host_and_not_a_busy_device() -> None:
    small = trace_of(*[Op(flops=1e3)] * 100)
    hooked = reduce(True, bytes=1, phase="forward", per="micro_step", count=10, issued=(6, 24))
    silent = replace(hooked, issued=(0, 0))
    found, before = (step(small, cluster=parse_cluster("8xH100"), collectives=(one,)) for one in (hooked, silent))
    assert found.forward_seconds - before.forward_seconds == pytest.approx(10 * (6 + 0.13 * 18) * HOST)
    assert found.low_seconds - before.low_seconds == pytest.approx(10 * 6 * HOST * 0.80, rel=1e-3)
    busy = [step(trace_of(BIG), cluster=parse_cluster("8xH100"), collectives=(one,)) for one in (hooked, silent)]
    assert busy[0].step_seconds == busy[1].step_seconds


def test_hooks_that_run_once_in_a_step_are_spread_over_its_micro_steps() -> None:
    small = trace_of(*[Op(flops=1e3)] * 100)
    often, once = (
        step(small, accumulation_steps=4, collectives=(reduce(True, bytes=1, phase="forward", per=per, issued=(9, 9)),))
        for per in ("micro_step", "step")
    )
    assert often.forward_seconds - once.forward_seconds == pytest.approx(3 * 9 * HOST)


def test_causal_kernels_do_half_of_the_counted_work() -> None:
    trace = trace_of(Op(name="_scaled_dot_product_cudnn_attention", flops=1e15))
    causal, full = step(trace), step(trace, causal_attention=False)
    waited = 0.55 * 132 * 128 * 128 / (16384 * 2048)  # what a chart's call waits for, of its time
    assert causal.forward_seconds == pytest.approx(1e15 / 2 / (518e12 * (1 + 2 * waited)), rel=1e-3)
    assert full.forward_seconds == pytest.approx(1e15 / (609e12 * (1 + waited)), rel=1e-3)


def test_recomputation_costs_time_and_no_model_flops() -> None:
    plain, checkpointed = decoder_trace(), decoder_trace(recompute=True)
    one, other = step(plain), step(checkpointed)
    assert other.recompute_seconds > 0
    assert one.recompute_seconds == 0
    assert other.model_flops == pytest.approx(one.model_flops)
    assert other.mfu is not None
    assert one.mfu is not None
    assert 0.6 * one.mfu < other.mfu < 0.9 * one.mfu


def test_recomputation_hides_transfers_as_backward_does() -> None:
    node, gradients = parse_cluster("8xH100"), reduce(True, bytes=10**8, count=100)
    work = replace(BIG, phase=1, flops=MM_RATE * 10 * call_seconds(gradients, node).expected)
    alone, again = trace_of(work), trace_of(work, replace(work, phase=2))
    one, other = (step(trace, node, collectives=(gradients,)) for trace in (alone, again))
    assert one.exposed_communication_seconds > other.recompute_seconds > 0
    hidden = one.exposed_communication_seconds - other.exposed_communication_seconds
    assert 0.5 * other.recompute_seconds < hidden <= other.recompute_seconds


def test_overlapped_transfers_hide_up_to_their_phases_computation() -> None:
    node = parse_cluster("8xH100")
    buckets = reduce(True, bytes=10**8, count=10)
    call = call_seconds(buckets, node).expected
    long, short = trace_of(replace(BIG, phase=1)), trace_of(replace(BIG, phase=1, flops=MM_RATE * call * 2))
    hidden = step(long, node, collectives=(buckets,))
    packing = 2 * 10**9 / MEMORY_RATE
    taken = 9 * call * 16 / 132
    assert hidden.exposed_communication_seconds == pytest.approx(call + taken + packing, rel=1e-3)
    assert hidden.communication_seconds == pytest.approx(10 * call)
    partly = step(short, node, collectives=(buckets,))
    late = 10 * call - 2 * call
    assert late < partly.exposed_communication_seconds < 10 * call
    waited = step(long, node, collectives=(replace(buckets, overlap=False),))
    assert waited.exposed_communication_seconds == pytest.approx(10 * call)
    assert waited.step_seconds > hidden.step_seconds


def test_nothing_hides_the_last_reduction_or_the_first_gather() -> None:
    node = parse_cluster("8xH100")
    trace = trace_of(BIG, replace(BIG, phase=1))
    for moved in (reduce(True), reduce(True, kind="all_gather", phase="forward")):
        time = step(trace, node, collectives=(moved,))
        assert time.exposed_communication_seconds == pytest.approx(call_seconds(moved, node).expected)
    units = reduce(True, kind="all_gather", count=4)
    again = step(trace, node, collectives=(units,))
    assert again.exposed_communication_seconds < 3 * call_seconds(units, node).expected


def test_transfers_hide_only_behind_their_own_phase() -> None:
    node = parse_cluster("8xH100")
    time = step(trace_of(BIG), node, collectives=(reduce(True),))
    assert time.exposed_communication_seconds == pytest.approx(time.communication_seconds)


def test_micro_steps_repeat_computation_and_their_own_transfers() -> None:
    node = parse_cluster("8xH100")
    trace = trace_of(BIG, replace(BIG, phase=1))
    optimizer = OptimizerWork(parameter_bytes_read_written=10**10)
    once = step(trace, node, collectives=(reduce(False),), optimizer=optimizer)
    four = step(trace, node, collectives=(reduce(False),), accumulation_steps=4, optimizer=optimizer)
    each = step(trace, node, collectives=(reduce(False, per="micro_step"),), accumulation_steps=4)
    assert four.forward_seconds == pytest.approx(4 * once.forward_seconds)
    assert four.optimizer_seconds == once.optimizer_seconds > 0
    assert four.communication_seconds == pytest.approx(once.communication_seconds)
    assert each.communication_seconds == pytest.approx(4 * once.communication_seconds)
    assert each.exposed_communication_seconds == pytest.approx(4 * once.communication_seconds)
    assert four.model_flops == pytest.approx(4 * once.model_flops)


def test_host_transfers_are_counted_apart_and_run_beside_collectives() -> None:
    node = parse_cluster("8xH100")
    copies = reduce(True, kind="device_to_host", bytes=10**10)
    time = step(trace_of(), node, collectives=(reduce(True), copies))
    assert time.host_transfer_seconds > time.communication_seconds > 0
    # What was reduced goes to the host: one after the other, where there is but one.
    together = time.host_transfer_seconds + time.communication_seconds
    assert time.exposed_communication_seconds == pytest.approx(together)
    pieces = (reduce(True, bytes=10**8, count=10), replace(copies, bytes=10**9, count=10))
    beside = step(trace_of(), node, collectives=pieces)
    assert beside.host_transfer_seconds < beside.exposed_communication_seconds
    assert beside.exposed_communication_seconds < beside.host_transfer_seconds + 0.2 * beside.communication_seconds


def test_the_optimizer_moves_bytes_on_the_device_or_on_the_host() -> None:
    node = parse_cluster("8xH100")
    touched = 10**10
    device = step(trace_of(BIG), node, optimizer=OptimizerWork(parameter_bytes_read_written=touched))
    assert device.optimizer_seconds == pytest.approx(touched / MEMORY_RATE, rel=2e-3)
    host = OptimizerWork(parameter_bytes_read_written=touched, on_host=True)
    offloaded = step(trace_of(BIG), node, optimizer=host)
    assert offloaded.optimizer_seconds == pytest.approx(touched / (100e9 / 8))
    assert offloaded.basis == "assumed"
    alone = step(trace_of(BIG), H100, optimizer=host)
    assert alone.optimizer_seconds == pytest.approx(touched / 50e9), "one device never has a whole server's RAM"


def test_throughput_counts_every_replica_once() -> None:
    node = parse_cluster("8xH100")
    time = step(trace_of(BIG, tokens_per_sample=1000), node, micro_batch=2, accumulation_steps=3)
    assert time.samples_per_second == pytest.approx(2 * 3 * 8 / time.step_seconds)
    assert time.tokens_per_second_per_gpu == pytest.approx(6000 / time.step_seconds)
    half = step(trace_of(BIG, tokens_per_sample=1000), node, micro_batch=2, accumulation_steps=3, data_parallel=4)
    assert half.samples_per_second == pytest.approx(time.samples_per_second / 2)


@pytest.mark.parametrize(("micro_batch", "recompute"), [(1, False), (2, True), (4, False)])
def test_an_8b_decoder_on_h100_gets_a_plausible_mfu(micro_batch: int, recompute: bool) -> None:
    parameters = 8_030_261_248
    layer = 2 * parameters // 32
    gather = Collective(kind="all_gather", bytes=layer, count=32, phase="forward", per="micro_step", overlap=True)
    collectives = (
        gather,
        replace(gather, phase="backward"),
        replace(gather, kind="reduce_scatter", bytes=2 * layer, phase="backward"),
    )
    time = step(
        decoder_trace(recompute=recompute),
        parse_cluster("8xH100"),
        micro_batch=micro_batch,
        collectives=collectives,
        optimizer=OptimizerWork(parameter_bytes_read_written=28 * parameters // 8),
    )
    assert time.mfu is not None
    assert 0.25 < time.mfu < 0.65
    assert time.model_flops == pytest.approx(6 * 7.5e9 * 4096 * micro_batch, rel=0.2)


def _valid(time: StepTime) -> None:
    assert 0 < time.low_seconds <= time.step_seconds <= time.high_seconds < math.inf
    parts = time.forward_seconds + time.backward_seconds + time.recompute_seconds + time.optimizer_seconds
    assert time.step_seconds == pytest.approx(parts + time.exposed_communication_seconds, abs=2e-9)
    assert time.exposed_communication_seconds <= (time.communication_seconds + time.host_transfer_seconds) * (1 + 1e-9)
    assert time.basis in ("measured", "source", "assumed")


@pytest.mark.parametrize("gpu_id", load_gpus())
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_every_known_device_gets_a_finite_answer(gpu_id: str, dtype: str) -> None:
    cluster = Cluster(gpu=load_gpus()[gpu_id], nodes=2, gpus_per_node=2, host_ram_bytes=64 << 30)
    copies = reduce(True, kind="host_to_device", phase="step")
    time = step(
        decoder_trace(layers=2),
        cluster,
        compute_dtype=dtype,
        collectives=(reduce(True), reduce(False, kind="all_gather", phase="forward"), copies),
        optimizer=OptimizerWork(parameter_bytes_read_written=10**9),
    )
    _valid(time)


def test_a_cpu_is_assumed_and_shared_by_its_processes() -> None:
    one, two = parse_cluster("cpu", ram_bytes=1 << 34), parse_cluster("2xcpu", ram_bytes=1 << 34)
    alone, together = step(trace_of(BIG), one), step(trace_of(BIG), two)
    assert alone.basis == "assumed"
    assert alone.mfu is None
    assert together.forward_seconds == pytest.approx(2 * alone.forward_seconds)


def test_an_empty_step_is_finite() -> None:
    _valid(step(trace_of()))


OPS = st.builds(
    Op,
    name=st.sampled_from(["mm", "add", "_scaled_dot_product_flash_attention", "convolution"]),
    phase=st.sampled_from([0, 1, 2]),
    flops=st.floats(0, 1e15),
    flops_per_sample=st.floats(0, 1e14),
    moved=st.floats(0, 1e12),
    moved_per_sample=st.floats(0, 1e11),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(OPS, max_size=6), OPS, st.integers(1, 8), st.integers(0, 10**11), st.booleans())
def test_more_work_is_never_faster(ops: list[Op], more: Op, batch: int, num_bytes: int, overlap: bool) -> None:
    node = parse_cluster("2x8xH100")
    moving = reduce(overlap, bytes=num_bytes)
    base = step(trace_of(*ops), node, micro_batch=batch, collectives=(moving,))
    _valid(base)
    variants = [
        step(trace_of(*ops, more), node, micro_batch=batch, collectives=(moving,)),
        step(trace_of(*ops), node, micro_batch=batch + 1, collectives=(moving,)),
        step(trace_of(*ops), node, micro_batch=batch, collectives=(moving, reduce(overlap))),
        step(trace_of(*ops), node, micro_batch=batch, collectives=(replace(moving, overlap=False),)),
    ]
    for other in variants:
        assert other.step_seconds >= base.step_seconds * (1 - 1e-9)


def test_a_seen_trace_is_little_work() -> None:
    """A few thousand calls for sixty thousand operations: its sums were kept."""
    trace = trace_of(*(Op(flops_per_sample=float(index % 500), moved=1e6) for index in range(60_000)))
    step(trace)
    assert calls_of(lambda: step(trace)) < 4000


def test_a_step_without_samples_is_refused() -> None:
    with pytest.raises(InputError, match="at least one sample"):
        work(trace_of(), micro_batch=0)
    with pytest.raises(InputError, match="negative"):
        OptimizerWork(parameter_bytes_read_written=-1)


def test_the_model_needs_no_torch() -> None:
    code = "import sys, gpu_plan.planner.speed.roofline; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
