"""Kinds that were not traced: one line for each reason."""

from gpu_plan.reports.plan.added.left_out_words import left_out_lines


def test_kinds_with_one_reason_share_a_line() -> None:
    told = (
        "FSDP2 × TP 2, no checkpointing: needs at least 9 GiB, has 8",
        "FSDP2 × TP 2, full checkpointing: needs at least 9 GiB, has 8",
        "pipeline PP 2 (1f1b, balanced layers), full checkpointing: needs at least 9 GiB, has 8",
        "FSDP2 × TP 4, full checkpointing: cannot come first: at best 1.05 times as long as FSDP2",
    )
    assert left_out_lines(told) == [
        "needs at least 9 GiB, has 8: FSDP2 × TP 2, pipeline PP 2 (1f1b, balanced layers) with full checkpointing",
        "FSDP2 × TP 4, full checkpointing: cannot come first: at best 1.05 times as long as FSDP2",
    ]
