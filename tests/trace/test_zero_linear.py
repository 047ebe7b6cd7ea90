"""What layers keep for backward where DeepSpeed's linear function runs in the place of torch's."""

from dataclasses import replace

from gpu_plan.planner.strategy.kinds.zero2 import Zero2
from gpu_plan.planner.strategy.kinds.zero3 import Zero3
from gpu_plan.planner.trace.events import Kind, Mark, StepTrace
from gpu_plan.planner.workload.training import Peft, Precision, Stack
from tests.support.ranks.case import RankCase
from tests.support.ranks.replay import traced_as

CASE = RankCase(architecture="llama-3", strategy="zero3", lora_rank=4, lora_targets=("q_proj", "v_proj"))
HIDDEN, INTERMEDIATE, LAYERS = 64, 160, 2


def kept_by_forward(trace: StepTrace) -> int:
    """Bytes that live as backward begins."""
    before = slice(0, trace.mark_position(Mark.BACKWARD))
    kind, subject = trace.kind[before], trace.subject[before]
    sizes = trace.tensor_bytes(CASE.micro_batch)
    return int(sizes[subject[kind == Kind.ALLOC]].sum() - sizes[subject[kind == Kind.FREE]].sum())


def test_inputs_of_frozen_layers_are_kept() -> None:
    regime = Zero3().regime(CASE.precision, Stack.PLAIN, Peft("lora"))
    assert regime.zero_linear
    ours, torchs = (traced_as(CASE, replace(regime, zero_linear=on)) for on in (True, False))
    tokens = CASE.micro_batch * CASE.seq_len
    # Of each layer what goes into the MLP and into its last product; the attention keeps its output anyway. The head.
    kept = (LAYERS * (HIDDEN + INTERMEDIATE) + HIDDEN) * tokens * 4
    assert kept_by_forward(ours) - kept_by_forward(torchs) == kept


def test_adapters_stay_fp32_beside_what_zero_init_partitioned() -> None:
    regime = Zero3().regime(Precision("bf16-mixed"), Stack.PLAIN, Peft("lora"))
    assert (regime.weights, regime.trained) == ("bfloat16", "float32")
    quantised = Zero3().regime(Precision("bf16-mixed"), Stack.PLAIN, Peft("qlora"))
    assert (quantised.weights, quantised.trained) == ("bfloat16", "bfloat16"), "loaded without zero.Init, and cast"


def test_where_all_is_trained_the_trace_is_shared() -> None:
    precision, stack = Precision("bf16-mixed"), Stack.PLAIN
    assert Zero3().regime(precision, stack) == Zero2().regime(precision, stack)
