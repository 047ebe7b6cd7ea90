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
        (lambda p: bitsandbytes.optim.PagedAdamW(p), "paged-adamw"),
        (lambda p: bitsandbytes.optim.AdamW(p, is_paged=True), "paged-adamw"),
        (lambda p: torch.optim.Adam(p, weight_decay=0.1), "adamw"),
        (lambda p: torch.optim.Adam(p, amsgrad=True), "adamw-amsgrad"),
        (lambda p: torch.optim.SGD(p, weight_decay=0.1), "sgd-l2"),
        (lambda p: torch.optim.SGD(p, momentum=0.9, weight_decay=0.1), "sgd-momentum-l2"),
        (lambda p: torch.optim.SGD(p, momentum=0.9, weight_decay=0.1, foreach=False), "sgd-momentum"),
        (lambda p: torch.optim.SGD([{"params": p, "weight_decay": 0.0}, {"params": []}], weight_decay=0.1), "sgd-l2"),
        (lambda p: torch.optim.RMSprop(p), "rmsprop"),
        (lambda p: torch.optim.RMSprop(p, momentum=0.9, weight_decay=0.1), "rmsprop-momentum-l2"),
        (lambda p: torch.optim.RMSprop(p, centered=True), "rmsprop-momentum"),
        (lambda p: torch.optim.RMSprop(p, centered=True, momentum=0.9), None),
        (lambda p: torch.optim.Adagrad(p, weight_decay=0.1), "adagrad"),
        (lambda p: torch.optim.Adadelta(p), "adadelta"),
        (lambda p: torch.optim.Adadelta(p, weight_decay=0.1), "adadelta-l2"),
        (lambda p: torch.optim.NAdam(p, weight_decay=0.1), "nadam-l2"),
        (lambda p: torch.optim.NAdam(p, weight_decay=0.1, decoupled_weight_decay=True), "nadam"),
        (lambda p: torch.optim.RAdam(p), "radam"),
        (lambda p: torch.optim.Adamax(p), "adamax"),
        (lambda p: torch.optim.Adamax(p, foreach=False), None),
    ],
)
def test_the_optimizer_of_a_script_by_what_it_keeps(make: Any, planned: str | None) -> None:
    assert planned_name(optimizer_facts(make([torch.nn.Parameter(torch.zeros(8))]))) == planned
