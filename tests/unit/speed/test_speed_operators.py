"""Operators of a trace, classified and grouped."""

from dataclasses import replace

import numpy as np
import pytest

from gpu_plan.planner.speed.operators import OperatorCache, OperatorClass, class_of, collect
from tests.support.synthetic_trace import Op, trace_of


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mm", OperatorClass.MATMUL),
        ("convolution_backward", OperatorClass.MATMUL),
        ("_scaled_mm", OperatorClass.FLOAT8),
        ("_scaled_dot_product_cudnn_attention", OperatorClass.CUDNN_FORWARD),
        ("_scaled_dot_product_cudnn_attention_backward", OperatorClass.CUDNN_BACKWARD),
        ("_scaled_dot_product_flash_attention_backward", OperatorClass.FLASH_BACKWARD),
        ("_scaled_dot_product_efficient_attention", OperatorClass.FLASH_FORWARD),
    ],
)
def test_classes_by_name(name: str, expected: OperatorClass) -> None:
    assert class_of(name, True) == expected
    assert class_of(name, False) == OperatorClass.MEMORY


def test_equal_operators_are_counted_and_unequal_ones_kept_apart() -> None:
    trace = trace_of(*[Op(flops_per_sample=4.0, moved=2.0)] * 3, Op(flops_per_sample=5.0), Op(phase=1, flops=4.0))
    operators = collect(trace)
    assert sorted(operators.count.tolist()) == [1.0, 1.0, 3.0]
    assert float(operators.count @ operators.flops(2)) == 3 * 8 + 10 + 4
    assert float(operators.count @ operators.bytes(2)) == 6


def test_model_flops_leave_out_recomputation_and_the_scores_computed_twice() -> None:
    trace = trace_of(
        Op(flops=10.0),
        Op(flops=20.0, phase=1),
        Op(flops=10.0, phase=2),
        Op(name="_scaled_dot_product_flash_attention_backward", flops=5.0, phase=1),
    )
    assert collect(trace).model_flops(1) == pytest.approx(10 + 20 + 4)


def test_an_embedding_reads_its_rows_not_its_table() -> None:
    trace = trace_of(Op(name="embedding", moved=1e9, moved_per_sample=64.0, writes=((0, 56),)))
    assert collect(trace).bytes(3).tolist() == [2 * 56 * 3]


def test_a_strided_copy_has_the_bytes_of_the_smallest_element_that_it_writes() -> None:
    """Several copies at once, one of which writes two tensors and one nothing."""
    copies = [Op(name="clone", writes=writes) for writes in (((0, 8),), (), ((0, 8), (0, 16)))]
    trace = trace_of(*copies, Op(name="mm", writes=((0, 8),)))
    shapes = ["[4] bfloat16", "[4] float32", "[4, 4] bool", "[4] float32"]
    each = collect(replace(trace, tensor_shape=shapes), each=True)
    assert each.item_bytes.tolist() == [2, np.inf, 1, np.inf]


def test_what_differs_in_one_flag_alone_is_kept_apart() -> None:
    """A product of fp32 matrices beside one that reads 16 bits, equal in all else."""
    shapes = ("[4, 8] float32", "[4, 8] bfloat16", "[4, 8] float32")
    told = trace_of(
        *[Op(flops=8.0, writes=((0, 8),), reads=(place,), shapes=(shape,)) for place, shape in enumerate(shapes)]
    )
    operators = collect(told)
    assert sorted(zip(operators.wide.tolist(), operators.count.tolist(), strict=True)) == [(False, 1.0), (True, 2.0)]


def test_an_empty_trace_has_no_operators() -> None:
    assert len(collect(trace_of()).count) == 0


def test_the_cache_never_confuses_traces_and_forgets_the_oldest() -> None:
    cache = OperatorCache()
    traces = [trace_of(Op(flops=float(index + 1))) for index in range(40)]
    for _ in range(2):
        for index, trace in enumerate(traces):
            assert cache.of(trace).flops(1).tolist() == [index + 1]
    assert cache.of(traces[-1]) is cache.of(traces[-1])
    assert len(cache._kept) <= 16


def test_attention_of_every_kind_gets_a_rate_of_its_own() -> None:
    name = "_scaled_dot_product_flash_attention"
    trace = trace_of(
        Op(flops=1.0),
        Op(name=f"{name}[causal,64]", flops=8.0),
        Op(name=f"{name}[full,128]", flops=8.0),
        Op(name=f"{name}_backward[causal,64]", flops=20.0, phase=1),
        Op(name=name, flops=8.0),
    )
    operators = collect(trace)
    assert {(kind.causal, kind.head_dim) for kind in operators.attention} == {(True, 64), (False, 128)}
    assert len(set(operators.rate.tolist())) == 5
    assert operators.model_flops(1) == pytest.approx(1 + 8 + 8 + 16 + 8)


def test_products_of_experts_are_grouped_where_one_call_makes_them_all() -> None:
    experts = "layers.0.mlp.experts.linear_fc1"
    trace = trace_of(
        Op(name="bmm", flops=1.0, module=experts),
        Op(flops=2.0, phase=1, module=experts),
        Op(flops=3.0, phase=1, module=experts, writes=((8, 0),)),
        Op(name="bmm", flops=4.0, module="layers.0.self_attention"),
    )
    found = collect(trace)
    assert sorted(found.flops(1)[found.grouped].tolist()) == [1.0, 2.0]
