"""Which `--optimizer` an optimizer of a script is."""

from typing import Any

import bitsandbytes
import pytest
import torch

from gpu_plan.planner.capture.watch.observe import optimizer_facts, planned_name


@pytest.mark.parametrize(
    ("make", "planned"),
    [
        (lambda p: bitsandbytes.optim.AdamW(p, optim_bits=8), "adamw-8bit"),
        (lambda p: bitsandbytes.optim.AdamW8bit(p), "adamw-8bit"),
        (lambda p: bitsandbytes.optim.PagedAdamW8bit(p), "paged-adamw-8bit"),
        (lambda p: bitsandbytes.optim.AdamW(p), None),
        (lambda p: bitsandbytes.optim.Lion(p), "lion"),
        (lambda p: bitsandbytes.optim.Lion(p, optim_bits=8), "lion-8bit"),
        (lambda p: bitsandbytes.optim.Lion8bit(p), "lion-8bit"),
        (lambda p: bitsandbytes.optim.PagedLion(p), None),
        (lambda p: torch.optim.SGD(p, momentum=0.9), "sgd-momentum"),
        (lambda p: torch.optim.AdamW(p, fused=True), "adamw-fused"),
    ],
)
def test_the_optimizer_of_a_script_by_what_it_keeps(make: Any, planned: str | None) -> None:
    assert planned_name(optimizer_facts(make([torch.nn.Parameter(torch.zeros(8))]))) == planned
