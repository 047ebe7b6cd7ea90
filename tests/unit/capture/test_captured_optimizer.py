"""Which `--optimizer` an optimizer of a script is."""

from typing import Any

import bitsandbytes
import pytest
import torch

from gpu_plan.planner.capture.watch.observe import OptimizerFacts, optimizer_facts, planned_name


class Muon(torch.optim.SGD):
    """A script's own, which is not torch's."""


class Lion(torch.optim.SGD):
    """A script's own, which is not bitsandbytes'."""


@pytest.mark.parametrize(
    ("make", "planned"),
    [
        (lambda p: bitsandbytes.optim.AdamW(p, optim_bits=8), "adamw-8bit"),
        (lambda p: bitsandbytes.optim.AdamW8bit(p), "adamw-8bit"),
        (lambda p: bitsandbytes.optim.PagedAdamW8bit(p), "paged-adamw-8bit"),
        (lambda p: bitsandbytes.optim.AdamW(p), "adamw-bnb"),
        (lambda p: bitsandbytes.optim.Adam32bit(p), "adamw-bnb"),
        (lambda p: bitsandbytes.optim.Lion(p), "lion"),
        (lambda p: bitsandbytes.optim.Lion(p, optim_bits=8), "lion-8bit"),
        (lambda p: bitsandbytes.optim.Lion8bit(p), "lion-8bit"),
        (lambda p: bitsandbytes.optim.PagedLion(p), "paged-lion"),
        (lambda p: bitsandbytes.optim.PagedLion8bit(p), "paged-lion-8bit"),
        (lambda p: bitsandbytes.optim.AdEMAMix(p), "ademamix"),
        (lambda p: bitsandbytes.optim.AdEMAMix8bit(p), "ademamix-8bit"),
        (lambda p: bitsandbytes.optim.PagedAdEMAMix(p), "paged-ademamix"),
        (lambda p: bitsandbytes.optim.PagedAdEMAMix8bit(p), "paged-ademamix-8bit"),
        (lambda p: bitsandbytes.optim.RMSprop(p, optim_bits=8), "rmsprop-8bit"),
        (lambda p: bitsandbytes.optim.RMSprop32bit(p), "rmsprop-bnb"),
        (lambda p: bitsandbytes.optim.Adagrad8bit(p), "adagrad-8bit"),
        (lambda p: bitsandbytes.optim.SGD(p, lr=1e-3, momentum=0.9), "sgd-bnb"),
        (lambda p: bitsandbytes.optim.LAMB8bit(p), "lamb-8bit"),
        (lambda p: bitsandbytes.optim.LAMB(p), "lamb"),
        (lambda p: bitsandbytes.optim.LARS(p, lr=1e-3, momentum=0.9), "lars"),
        (lambda p: bitsandbytes.optim.PytorchLARS(p, lr=1e-3, momentum=0.9), None),
        (lambda p: torch.optim.Muon([torch.nn.Parameter(torch.zeros(8, 8))]), "muon"),
        (lambda p: Muon(p), None),
        (lambda p: Lion(p), None),
        (lambda p: torch.optim.SGD(p, momentum=0.9), "sgd-momentum"),
        (lambda p: torch.optim.AdamW(p, fused=True), "adamw-fused"),
        (lambda p: bitsandbytes.optim.PagedAdamW(p), "paged-adamw"),
        (lambda p: bitsandbytes.optim.AdamW(p, is_paged=True), "paged-adamw"),
        (lambda p: torch.optim.Adam(p, weight_decay=0.1), "adamw"),
        (lambda p: torch.optim.Adam(p, amsgrad=True), "adamw-amsgrad"),
        (lambda p: torch.optim.SGD(p, weight_decay=0.1), "sgd-l2"),
        (lambda p: torch.optim.SGD(p, momentum=0.9, weight_decay=0.1), "sgd-momentum-l2"),
        (lambda p: torch.optim.SGD(p, momentum=0.9, weight_decay=0.1, foreach=False), "sgd-momentum-l2-forloop"),
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
        (lambda p: torch.optim.Adamax(p, foreach=False), "adamax-forloop"),
        (lambda p: torch.optim.NAdam(p, foreach=False, weight_decay=0.1), "nadam-l2-forloop"),
        (lambda p: torch.optim.RMSprop(p, foreach=False, centered=True), "rmsprop-momentum-forloop"),
        (lambda p: torch.optim.Adagrad(p, foreach=False, weight_decay=0.1), "adagrad-l2-forloop"),
        (lambda p: torch.optim.Adadelta(p, foreach=False), None),
        (lambda p: torch.optim.RAdam(p, foreach=False), None),
        (lambda p: torch.optim.AdamW(p, foreach=False), "adamw-forloop"),
        (lambda p: torch.optim.AdamW(p, foreach=False, amsgrad=True), "adamw-amsgrad-forloop"),
        (lambda p: torch.optim.Adam(p, foreach=False, weight_decay=0.1), "adamw-l2-forloop"),
        (lambda p: torch.optim.Adam(p, foreach=False, weight_decay=0.1, maximize=True), None),
        (lambda p: torch.optim.AdamW(p, foreach=False, maximize=True), "adamw-l2-forloop"),
        (lambda p: torch.optim.AdamW(p, maximize=True), "adamw"),
        (lambda p: torch.optim.AdamW(p, foreach=True), "adamw"),
        (lambda p: torch.optim.AdamW(p, differentiable=True), None),
        (lambda p: torch.optim.SGD(p, foreach=False), "sgd"),
        (lambda p: torch.optim.SGD(p, foreach=False, weight_decay=0.1), "sgd-l2-forloop"),
        (lambda p: torch.optim.SGD(p, foreach=False, momentum=0.9, nesterov=True), None),
        (lambda p: torch.optim.SGD(p, momentum=0.9, nesterov=True), "sgd-momentum"),
        (lambda p: torch.optim.SGD(p, maximize=True), "sgd-l2"),
        (lambda p: torch.optim.SGD(p, fused=True, weight_decay=0.1), "sgd"),
        (lambda p: torch.optim.Adamax(p, capturable=True), None),
        (lambda p: torch.optim.Rprop(p), "rprop"),
        (lambda p: torch.optim.Rprop(p, foreach=False), None),
        (lambda p: torch.optim.ASGD(p), "asgd"),
        (lambda p: torch.optim.ASGD(p, maximize=True), None),
        (lambda p: torch.optim.Adafactor(p), "adafactor-torch"),
        (lambda p: torch.optim.Adafactor(p, foreach=True), None),
        (lambda p: torch.optim.LBFGS(p), None),
        (lambda p: torch.optim.SparseAdam(p), None),
    ],
)
def test_the_optimizer_of_a_script_by_what_it_keeps(make: Any, planned: str | None) -> None:
    assert planned_name(optimizer_facts(make([torch.nn.Parameter(torch.zeros(8))]))) == planned


@pytest.mark.parametrize(
    ("module", "name", "options", "planned"),
    [
        ("lion_pytorch.lion_pytorch", "Lion", {"weight_decay": 0.1}, "lion-pytorch"),
        ("schedulefree.adamw_schedulefree", "AdamWScheduleFree", {"foreach": True}, "adamw-schedule-free"),
        ("schedulefree.adamw_schedulefree", "AdamWScheduleFree", {"foreach": False}, None),
        ("schedulefree.adamw_schedulefree_closure", "AdamWScheduleFreeClosure", {"foreach": True}, None),
        ("schedulefree.radam_schedulefree", "RAdamScheduleFree", {"foreach": True}, "radam-schedule-free"),
        ("schedulefree.sgd_schedulefree", "SGDScheduleFree", {"foreach": True}, "sgd-schedule-free"),
        ("galore_torch.adamw", "AdamW", {}, None),
        ("apollo_torch.apollo", "AdamW", {}, None),
        ("torchao.optim.adam", "AdamW8bit", {}, None),
        ("optimi.stableadamw", "StableAdamW", {}, None),
        ("__main__", "AdamW", {}, None),
        ("lomo_optim.adalomo", "AdaLomo", {}, None),
    ],
)
def test_packages_that_are_not_installed_here_and_what_bears_a_known_name(
    module: str, name: str, options: dict[str, Any], planned: str | None
) -> None:
    facts = OptimizerFacts(class_name=f"{module}.{name}", options=options, groups=1, parameters=8, state_bytes=0)
    assert planned_name(facts) == planned
