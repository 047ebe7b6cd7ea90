"""Notes what the script sets up around its model: optimizers, schedulers, clipping, who runs the loop."""

import contextlib
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch

from gpu_plan.planner.capture.answers.flex import WRAPPER
from gpu_plan.planner.capture.imports import when_imported
from gpu_plan.planner.capture.request import OptimizerFacts
from gpu_plan.planner.workload.optimizers.registry import optimizers
from gpu_plan.planner.workload.optimizers.traits import Seen

_OPTIONS = (
    *("fused", "foreach", "momentum", "amsgrad", "nesterov", "maximize", "capturable", "differentiable"),
    *("centered", "weight_decay", "decoupled_weight_decay"),
)


@dataclass(slots=True)
class Observed:
    """What has been seen so far."""

    constructed: list[weakref.ref[Any]] = field(default_factory=list)
    optimizers: list[Any] = field(default_factory=list)
    """Those that have taken a step."""
    schedulers: list[str] = field(default_factory=list)
    clipping: float | None = None
    trainers: list[Any] = field(default_factory=list)
    lightning: bool = False
    construct: Callable[[], None] = lambda: None
    """Called when an optimizer is constructed."""
    begin_step: Callable[[], None] = lambda: None
    """Called before an optimizer's step."""
    starts_ranks: bool = False
    """Whether the script starts its ranks by itself."""
    compiled: bool = False
    compiles: bool = False
    """The same, whoever asked for it."""

    @property
    def made(self) -> list[Any]:
        """Every optimizer that was constructed and that the script still has: one that it let go never steps."""
        return [made for ref in self.constructed if (made := ref()) is not None]


def watch(observed: Observed, stack: contextlib.ExitStack, on_step: Callable[[Any], None]) -> None:
    """Hooks that note optimizers and clipping for the rest of the process; `on_step(optimizer)` runs after a step."""
    from torch.optim import lr_scheduler, optimizer

    def stepped(made: Any, args: Any, kwargs: Any) -> None:
        if made not in observed.optimizers:
            observed.optimizers.append(made)
        on_step(made)

    optimizer.register_optimizer_step_pre_hook(lambda *_: observed.begin_step())
    optimizer.register_optimizer_step_post_hook(stepped)
    optimizer_init = optimizer.Optimizer.__init__

    def constructed(self: Any, *args: Any, **kwargs: Any) -> None:
        observed.constructed.append(weakref.ref(self))
        observed.construct()
        optimizer_init(self, *args, **kwargs)

    stack.enter_context(mock.patch.object(optimizer.Optimizer, "__init__", constructed))

    def clipped(parameters: Any, max_norm: float, *args: Any, **kwargs: Any) -> torch.Tensor:
        observed.clipping = float(max_norm)
        device = next((p.device for p in _listed(parameters)), torch.device("meta"))
        return torch.ones((), device=device)

    for home in (torch.nn.utils, torch.nn.utils.clip_grad):
        stack.enter_context(mock.patch.object(home, "clip_grad_norm_", clipped))
    # Fused steps take meta tensors for what they stand for: the state is made, the update is nobody's.
    fused_on = optimizer._get_fused_kernels_supported_devices()
    stack.enter_context(
        mock.patch.object(optimizer, "_get_fused_kernels_supported_devices", return_value=[*fused_on, "meta"])
    )
    scheduler_init = lr_scheduler.LRScheduler.__init__

    def scheduled(self: Any, *args: Any, **kwargs: Any) -> None:
        observed.schedulers.append(type(self).__name__)
        scheduler_init(self, *args, **kwargs)

    stack.enter_context(mock.patch.object(lr_scheduler.LRScheduler, "__init__", scheduled))

    def compiled(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        # What inductor fuses is planned with --compile; the step itself is recorded as it is written.
        observed.compiled |= asked_by_user()
        observed.compiles |= getattr(model, "__name__", "") != WRAPPER
        return model if model is not None else (lambda function: function)

    def compiled_in_place(module: Any, *args: Any, **kwargs: Any) -> None:
        observed.compiled |= asked_by_user()
        observed.compiles = True

    stack.enter_context(mock.patch.object(torch, "compile", compiled))
    stack.enter_context(mock.patch.object(torch.nn.Module, "compile", compiled_in_place))


def watch_trainer(observed: Observed) -> None:
    """Notes the transformers Trainer that is made, whenever its module is imported."""

    def note(module: Any) -> None:
        init = module.Trainer.__init__

        def noted(trainer: Any, *args: Any, **kwargs: Any) -> None:
            observed.trainers.append(trainer)
            init(trainer, *args, **kwargs)

        module.Trainer.__init__ = noted

    when_imported("transformers.trainer", note)


def asked_by_user() -> bool:
    """Whether the caller of a patched function stands in a file that is not an installed package."""
    return "site-packages" not in sys._getframe(2).f_code.co_filename


def _listed(parameters: Any) -> list[torch.Tensor]:
    return [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)


def loop_of(observed: Observed) -> tuple[str, str]:
    """The `--stack` that runs the loop, and its finer name."""
    modules = sys.modules
    state = getattr(modules.get("accelerate.state"), "AcceleratorState", None)
    for name in ("lightning.pytorch", "pytorch_lightning"):
        if name in modules:
            observed.lightning = True
            return "plain", "lightning"
    if observed.trainers:
        return _trainer_of(type(observed.trainers[-1])), type(observed.trainers[-1]).__name__
    if state is not None and state._shared_state:
        return "accelerate", "accelerate"
    return "plain", "plain"


_TRAINERS = (("unsloth", "unsloth"), ("axolotl", "axolotl"), ("llamafactory", "llama-factory"), ("trl", "trl"))
"""Packages whose trainers have ways of their own, the outermost first, and their stacks."""


def _trainer_of(kind: type) -> str:
    """The stack of a Trainer: of the first of these packages that it or a class that it derives from comes from."""
    homes = {base.__module__.partition(".")[0] for base in kind.__mro__}
    return next((stack for package, stack in _TRAINERS if package in homes), "trainer")


def optimizer_facts(made: Any) -> OptimizerFacts:
    """One optimizer after its first step; bytes of its state as stored, counted once per storage."""
    groups = made.param_groups
    first = {key: groups[0][key] for key in _OPTIONS if key in groups[0]}
    if "weight_decay" in first:  # biases and norms are often in a group without it, which may be the first
        first["weight_decay"] = max(float(group.get("weight_decay") or 0.0) for group in groups)
    seen: dict[int, int] = {}
    for state in made.state.values():
        for value in state.values() if isinstance(state, dict) else ():
            if isinstance(value, torch.Tensor):
                storage = value.untyped_storage()
                seen[storage._cdata] = storage.nbytes()
    kind = type(made)
    if kind.__module__.startswith("bitsandbytes") and hasattr(made, "args"):  # its PytorchLARS is torch's kind
        first |= {"optim_bits": made.args.optim_bits, "is_paged": made.is_paged}
    return OptimizerFacts(
        class_name=f"{kind.__module__}.{kind.__qualname__}",
        options={key: value for key, value in first.items() if isinstance(value, (bool, int, float, type(None)))},
        groups=len(groups),
        parameters=sum(p.numel() for group in groups for p in group["params"]),
        state_bytes=sum(seen.values()),
    )


def planned_name(facts: OptimizerFacts) -> str | None:
    """The `--optimizer` that allocates as this one does; None where there is none."""
    module, _, name = facts.class_name.rpartition(".")
    seen = Seen(module=module, name=name, options=facts.options)
    return next((traits.name for traits in optimizers().values() if traits.captured(seen)), None)


def takes_turns(observed: Observed) -> bool:
    """Whether an optimizer trains something of its own that the backward pass so far has given no gradient."""
    owned = [{id(p): p for group in made.param_groups for p in group["params"]} for made in observed.made]
    idle = [own for own in owned if own and all(p.grad is None for p in own.values())]
    busy = {key for own in owned for key, p in own.items() if p.grad is not None}
    return bool(busy) and any(not own.keys() & busy for own in idle)


def waiting(observed: Observed) -> list[Any]:
    """Optimizers whose parameters have gradients and that have not stepped."""
    stepped = {id(made) for made in observed.optimizers}
    return [
        made
        for made in observed.made
        if id(made) not in stepped and any(p.grad is not None for group in made.param_groups for p in group["params"])
    ]
