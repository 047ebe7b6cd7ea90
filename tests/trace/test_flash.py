"""`--attention flash` runs transformers' own FlashAttention integration: layouts, masks, refusals, FLOPs."""

import numpy as np
import pytest
import torch
from transformers import modeling_flash_attention_utils, modeling_utils

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.memory.profile import measure
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.build.flash.second import flash_attn_func, flash_attn_varlen_func
from gpu_plan.planner.strategy.base import RankContext
from gpu_plan.planner.strategy.kinds.single import Single
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.inputs.batch import training_batch
from gpu_plan.planner.trace.kernels.attention import attention_scratch
from gpu_plan.planner.trace.kernels.temporaries import CpuProfile, CudaProfile, KernelProfile
from gpu_plan.planner.trace.recording.operators.work import operator_flops
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Optimizer, Precision, Stack
from tests.accuracy.architectures import ARCHITECTURES

PURE = Precision("bf16")
SEQ, BATCH = 96, 2


A100 = CudaProfile(capability=(8, 0), sm_count=108)


def trace(
    architecture: str,
    attention: str,
    precision: Precision = PURE,
    batch: int = BATCH,
    profile: KernelProfile = A100,
) -> StepTrace:
    model = build_model(ARCHITECTURES[architecture].config(), attention=attention)
    variant = StepVariant(
        regime=Single().regime(precision, Stack.TRAINER),
        checkpointing=Checkpointing.NONE,
        attention=Attention(attention),
        stack=Stack.TRAINER,
        seq_len=SEQ,
    )
    tracer = Tracer(
        model=model,
        make_batch=lambda model, batch, seq_len: training_batch(model, batch=batch, seq_len=seq_len),
        profile=profile,
        has_sequence=True,
    )
    return tracer.trace(variant, batch)


def peaks(step: StepTrace, precision: Precision = PURE) -> dict[str, int]:
    plan = Single().rank(
        RankContext(
            trace=step,
            precision=precision,
            optimizer=Optimizer("sgd"),
            stack=Stack.TRAINER,
            clipping=False,
            checkpointing=Checkpointing.NONE,
            accumulation_steps=1,
            world_size=1,
            capability=(8, 0),
        )
    )
    return {str(phase): size for phase, size in measure(plan.stream, BATCH).phase_peaks.items()}


def square(step: StepTrace) -> list[str]:
    return [shape for shape in step.tensor_shape if f"{SEQ}, {SEQ}]" in shape]


@pytest.mark.parametrize("precision", [Precision("bf16"), Precision("bf16-mixed")])
def test_without_a_mask_it_takes_what_sdpa_takes(precision: Precision) -> None:
    flash, sdpa = trace("llama-3", "flash", precision), trace("llama-3", "sdpa", precision)
    assert "_flash_attention_forward" in flash.operator_names
    assert "_scaled_dot_product_flash_attention" not in flash.operator_names
    assert peaks(flash, precision) == peaks(sdpa, precision)
    flops = [step.op_flops_fixed.sum() + BATCH * step.op_flops_per_sample.sum() for step in (flash, sdpa)]
    assert flops[0] == flops[1]


@pytest.mark.parametrize("architecture", ["gemma-3", "gemma-2"])
def test_a_window_makes_no_square_mask_and_repeats_no_keys(architecture: str) -> None:
    flash, sdpa = trace(architecture, "flash"), trace(architecture, "sdpa")
    assert square(sdpa)
    assert not square(flash)
    assert peaks(flash)["backward"] < peaks(sdpa)["backward"]


def test_a_single_sample_is_told_that_it_is_not_packed() -> None:
    step = trace("llama-3", "flash", batch=1)
    assert any("_flash_attention_forward -> False (follows from the inputs)" in site for site in step.host_reads)


def test_fp32_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match="16 bit only"):
        trace("llama-3", "flash", Precision("fp32"))


def test_a_class_without_flash_is_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"^T5\w+ has no flash attention in transformers: use --attention sdpa$"):
        build_model(ARCHITECTURES["t5"].config(), attention="flash")


def test_a_class_with_kernels_of_its_own_is_refused_by_name() -> None:
    with pytest.raises(
        InputError, match=r"^MiMoV2Flash\w+ runs flash attention only as flash_attention_4, which is not"
    ):
        build_model({"model_type": "mimo_v2_flash", "architectures": ["MiMoV2FlashForCausalLM"]}, attention="flash")


@pytest.mark.parametrize("profile", [CudaProfile(capability=(7, 5), sm_count=40), CpuProfile()])
def test_a_device_without_the_kernel_is_refused(profile: KernelProfile) -> None:
    with pytest.raises(InputError, match=r"compute capability 8\.0"):
        trace("llama-3", "flash", profile=profile)


def test_nothing_is_left_behind_in_transformers() -> None:
    before = dict(vars(modeling_flash_attention_utils))
    check = modeling_utils.PreTrainedModel._flash_attn_import_error
    matrix = modeling_utils.FLASH_ATTENTION_COMPATIBILITY_MATRIX[2]
    trace("llama-3", "flash")
    assert vars(modeling_flash_attention_utils) == before
    assert modeling_utils.PreTrainedModel._flash_attn_import_error is check
    assert modeling_utils.FLASH_ATTENTION_COMPATIBILITY_MATRIX[2] is matrix


def heads(tokens: tuple[int, ...], count: int, size: int = 64) -> torch.Tensor:
    return torch.empty(*tokens, count, size, dtype=torch.bfloat16, device="meta")


def test_sequences_end_to_end_keep_their_shape() -> None:
    starts = torch.zeros(4, dtype=torch.int32, device="meta")
    out = flash_attn_varlen_func(heads((300,), 8), heads((300,), 2), heads((300,), 2), starts, starts, 100, 100)
    assert out.shape == (300, 8, 64)


def test_odd_heads_are_padded_and_cropped_large_ones_refused() -> None:
    odd = heads((2, 16), 4, 61)
    assert flash_attn_func(odd, odd, odd).shape == (2, 16, 4, 61)
    large = heads((2, 16), 4, 264)
    with pytest.raises(InputError, match="up to 256"):
        flash_attn_func(large, large, large)


def test_scratch_is_the_same_kernel_s_in_both_layouts() -> None:
    query, key = heads((2, 200), 8), heads((2, 200), 2)
    out, lse = query, torch.empty(2, 8, 200, device="meta")
    by_sequence = attention_scratch(
        "_flash_attention_backward", (out, query, key, key, out, lse, None, None, 200, 200), 108
    )
    moved = [tensor.transpose(1, 2) for tensor in (out, query, key, key, out)]
    by_head = attention_scratch(
        "_scaled_dot_product_flash_attention_backward", (*moved, lse, None, None, 200, 200), 108
    )
    assert by_sequence == by_head
    # softmax_d, dq_accum over rows rounded to 128, then dk and dv for every query head.
    assert by_sequence == [4 * 2 * 8 * 256, 4 * 2 * 256 * 8 * 64, 2 * 200 * 8 * 64 * 2, 2 * 200 * 8 * 64 * 2]


def test_flops_of_equal_sequences_do_not_depend_on_the_layout() -> None:
    forward = torch.ops.aten._flash_attention_forward.default
    dense = (heads((3, 128), 8), heads((3, 128), 2), heads((3, 128), 2), None, None, 128, 128)
    starts = torch.zeros(4, dtype=torch.int32, device="meta")
    packed = (heads((384,), 8), heads((384,), 2), heads((384,), 2), starts, starts, 128, 128)
    expected = 2 * 2 * 3 * 8 * 128 * 128 * 64
    assert operator_flops(forward, dense, None) == operator_flops(forward, packed, None) == expected
    backward = torch.ops.aten._flash_attention_backward.default
    lse = torch.empty(3, 8, 128, device="meta")
    saved = (dense[0], *dense[:3], dense[0], lse, None, None, 128, 128)
    assert np.isclose(operator_flops(backward, saved, None), 2.5 * expected)
