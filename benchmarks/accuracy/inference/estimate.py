"""Peak allocated memory and tokens per second of whole generations: one sample, greedy, one GPU, FlashAttention 2.

What the software of a row did otherwise than the installed transformers is declared in `cases`; nothing is fitted.
"""

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmarks.accuracy.inference.cases import InferenceCase, as_it_was, case_of, rotary_bytes
from benchmarks.accuracy.models import Models
from benchmarks.accuracy.row import Row, identity, number, software_group, text
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.units import GIB

if TYPE_CHECKING:
    from gpu_plan.planner.search.generation.rank import Generated


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Tokens per second: slow <= expected <= fast."""

    slow: float
    expected: float
    fast: float


def figures_of(case: InferenceCase) -> tuple[dict[str, int], Rates]:
    """Peak allocated bytes of the whole generation and of its phases; its new tokens per second."""
    from gpu_plan.planner.memory.allocator.replay import simulate
    from gpu_plan.planner.memory.profile import measure
    from gpu_plan.planner.search.generation.rank import Generated, parameter_bytes
    from gpu_plan.planner.strategy.base import workspace_bytes
    from gpu_plan.planner.strategy.generation.stream import GenerationStream, States
    from gpu_plan.planner.trace.generation.passes import cut
    from gpu_plan.planner.trace.generation.record import prepare_for_generation, record_generation
    from gpu_plan.planner.trace.generation.session import trace_of
    from gpu_plan.planner.trace.generation.variant import GenerationVariant
    from gpu_plan.planner.trace.kernels.temporaries import kernel_profile
    from gpu_plan.planner.workload.training import Attention

    device = device_kind(parse_cluster(case.gpu).gpu)
    profile = kernel_profile(device)
    model = built(case, profile)
    prepare_for_generation(model)

    def traced(prompt: int) -> Any:
        variant = GenerationVariant(prompt=prompt, steps=3, batch=1, dtype="bfloat16", attention=Attention.FLASH)
        with as_it_was(model, case):
            return trace_of(model, record_generation(model, variant, profile))

    begun, full = traced(case.prompt), traced(case.prompt + case.new_tokens - 3)
    states = States(
        weights=tuple((parameter.name, parameter_bytes(parameter)) for parameter in begun.parameters),
        buffers=tuple(begun.buffer_bytes),
        late_buffers=rotary_bytes(model, case),
        copies=_copies(model) if case.head_stored else (),
        compared=False,
        workspace=workspace_bytes(profile.capability),
    )
    generated = Generated(cuts=(cut(begun, 0, 1), cut(full, 2)))
    stream = GenerationStream(states, generated.cuts).build()
    figures = measure(stream, 1, simulate(stream, 1).block_bytes(len(stream.fixed)))
    peaks = {str(phase): size for phase, size in figures.phase_peaks.items()}
    return peaks | {"peak": figures.peak_allocated_bytes}, _rates(case, generated)


def _rates(case: InferenceCase, generated: "Generated") -> Rates:
    """New tokens over the seconds from the prompt to the last one, as `plan --task infer` counts them."""
    from gpu_plan.planner.search.generation.times import pass_time
    from gpu_plan.planner.speed.roofline import RooflineModel

    cluster, speed, context = parse_cluster(case.gpu), RooflineModel(), case.prompt + case.new_tokens
    ((whole, _),) = generated.prefill
    first = pass_time(whole, cluster, speed, dtype="bfloat16", length=case.prompt, causal=True)
    later = pass_time(generated.last, cluster, speed, dtype="bfloat16", length=context, causal=False)

    def rate(prefill: float, decode: float) -> float:
        return case.new_tokens / (prefill + (case.new_tokens - 1) * decode)

    return Rates(
        slow=rate(first.high_seconds, later.high_seconds),
        expected=rate(first.step_seconds, later.step_seconds),
        fast=rate(first.low_seconds, later.low_seconds),
    )


def _copies(model: Any) -> tuple[tuple[str, int, int], ...]:
    """The tied head as it stands beside the embedding while weights are loaded."""
    head = model.get_output_embeddings().weight
    return (("lm_head.weight", head.numel() * head.element_size(), head.numel()),)


def built(case: InferenceCase, profile: Any) -> Any:
    """The row's model on meta."""
    import torch

    from gpu_plan.planner.model.build.construct import build_model
    from gpu_plan.planner.model.quantization import Method, Runtime, Target, parse_quantize

    dtype = torch.bfloat16
    model = build_model(json.loads(case.config), attention="flash", dtype=dtype, overrides=dict(case.changes))
    scheme = None if case.quantize is None else parse_quantize(case.quantize)
    if scheme is not None:
        from gpu_plan.planner.model.quantization.apply import quantise

        # The rows' own software: AutoGPTQ 0.7 and AutoAWQ 0.2, whose layers were others than today's.
        older = {Method.AWQ: Runtime.AUTOAWQ, Method.GPTQ: Runtime.AUTOGPTQ}.get(scheme.method)
        if older is not None:
            scheme = replace(scheme, runtime=older)
        quantise(model, scheme, target=Target(capability=profile.capability, sm_count=profile.sm_count), dtype=dtype)
    return model


def inference_group(row: Row) -> str:
    """Rows of one group have one source and one kind of weights."""
    return f"{software_group(row)}, {text(row, 'quantization') or 'bf16'}"


class InferenceLines:
    """Lines of the table."""

    def __init__(self, models: Models) -> None:
        self._models = models

    def line(self, row: Row) -> dict[str, Any]:
        """A row's figures; errors are estimate / measured - 1. SetAside when the row cannot be scored."""
        case = case_of(row, self._models)
        measured = (number(row, "measured.peak_allocated_gib") or 0.0) * GIB
        figures, rates = figures_of(case)
        return {
            "kind": "inference",
            "id": identity(row),
            "group": inference_group(row),
            "model": text(row, "model"),
            "quantization": text(row, "quantization") or None,
            "prompt": case.prompt,
            "software": text(row, "software").split(",")[0],
            "peak_allocated": figures["peak"],
            "measured_peak_allocated": round(measured),
            "peak_allocated_error": round(figures["peak"] / measured - 1, 4),
            **_speed(row, rates),
        }


def _speed(row: Row, rates: Rates) -> dict[str, Any]:
    """What a row that tells its tokens per second from the prompt to the last token is compared with."""
    measured = number(row, "measured.tokens_per_s_end_to_end")
    if measured is None:
        return {}
    return {
        "tokens_per_s": round(rates.expected, 3),
        "measured_tokens_per_s": measured,
        "tokens_per_s_error": round(rates.expected / measured - 1, 4),
        "tokens_per_s_inside": rates.slow <= measured <= rates.fast,
    }
