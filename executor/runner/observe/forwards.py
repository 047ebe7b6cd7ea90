"""Finds the modules that the script calls, and sees each call: batches, evaluations, recomputation.

The script's outermost calls are its models, whatever wraps them. They are found by a stand-in for `Module.__call__`
that is in place only outside any model's forward pass and only until a step has ended; then each model found carries
hooks of its own. Inside a forward pass nothing of ours stands in the way, nor is it seen by torch.compile.
"""

import logging
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, ref

from gpu_plan.executor.runner.figures.batches import batch_of

if TYPE_CHECKING:
    from gpu_plan.executor.runner.recorder import Recorder


class Forwards:
    """The models of one rank."""

    def __init__(self, torch: Any, recorder: "Recorder") -> None:
        self.roots: WeakSet[Any] = WeakSet()
        """Models with trainable parameters that were called to train; a wrapped one counts as its wrapper."""
        self.recomputed = False
        """Whether a module was called within a backward pass: activation checkpointing."""
        self.autocast: str | None = None
        """The dtype that the script itself autocasts the model's call to."""
        self._torch, self._recorder = torch, recorder
        self._original = torch.nn.Module.__call__
        self._primary: Any = _no_model
        """Weakly, the model whose calls count as batches: the first one that was called to train."""
        self._searching = self._in_place = False
        self._depth = 0

    def search(self) -> None:
        """Looks for models from now on, until `settle`; the next one that trains gives the batches."""
        self._searching, self._primary = True, _no_model
        self._place()

    def settle(self) -> None:
        """A step has ended: the models are known, if any was seen."""
        self._depth = 0
        if self.roots:
            self._searching = False
            self._remove()

    def original(self, current: Any) -> Any:
        """`Module.__call__` as torch made it, for whoever reads it while our stand-in is in place."""
        return self._original if getattr(current, "plan_stand_in", False) else current

    def training_now(self) -> list[Any]:
        """The models found, those inside another one left out; the one that gives the batches first."""
        primary = self._primary()
        roots = sorted(self.roots, key=lambda root: root is not primary)
        inner = {id(module) for root in roots for module in root.modules() if module is not root}
        return [root for root in roots if id(root) not in inner]

    def _place(self) -> None:
        if self._in_place or not self._searching:
            return
        forwards, original, compiling = self, self._original, self._torch.compiler.is_compiling

        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if compiling():
                return original(module, *args, **kwargs)
            return forwards._outermost(module, args, kwargs)

        call.plan_stand_in = True  # type: ignore[attr-defined]
        self._torch.nn.Module.__call__ = call
        self._in_place = True

    def _remove(self) -> None:
        if self._in_place:
            self._torch.nn.Module.__call__ = self._original
            self._in_place = False

    def _outermost(self, module: Any, args: Any, kwargs: Any) -> Any:
        if self._recorder.in_backward:
            self.recomputed = True
            self._remove()  # back in place when the next forward pass can begin
            return self._original(module, *args, **kwargs)
        parameter = next(module.parameters(), None)
        if parameter is None:  # a loss, a metric
            return self._original(module, *args, **kwargs)
        new = module not in self.roots
        if new:
            self._called(module, args, kwargs)
        self._remove()
        try:
            return self._original(module, *args, **kwargs)
        finally:
            self._place()
            if new and module in self.roots:
                self._attach(module)

    def backward_ended(self) -> None:
        """Models may be called again."""
        self._place()

    def _called(self, module: Any, args: Any, kwargs: Any) -> None:
        """A module is called that is part of no other's forward pass."""
        recorder = self._recorder
        try:
            trains = self._torch.is_grad_enabled() and any(each.requires_grad for each in module.parameters())
            if trains and self._primary() is None:
                self._primary = ref(module)
            if trains and module not in self.roots:
                self.roots.add(module)
                self._autocast(module)
                recorder.model_found(module)
            counts = trains and module is self._primary()
            recorder.forward_begins(batch_of(args, kwargs) if counts else None, training=trains)
        except Exception as error:
            recorder.failed("calls of the model", error)

    def _autocast(self, module: Any) -> None:
        device = next(module.parameters()).device.type
        if self._torch.is_autocast_enabled(device):
            self.autocast = str(self._torch.get_autocast_dtype(device)).removeprefix("torch.")

    def _attach(self, module: Any) -> None:
        """Hooks of the instance itself. One that is compiled in place keeps none: they would be traced."""
        if getattr(module, "_compiled_call_impl", None) is not None:
            return
        module.register_forward_pre_hook(_Hook(self._enter), with_kwargs=True)
        module.register_forward_hook(_Hook(self._leave), with_kwargs=True, always_call=True)

    def _enter(self, module: Any, args: Any, kwargs: Any) -> None:
        self._depth += 1
        if self._depth == 1 and not self._recorder.in_backward:
            self._called(module, args, kwargs)

    def _leave(self, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        self._depth = max(self._depth - 1, 0)


def _no_model() -> None:
    """As a reference to a model that is gone."""


class _Hook:
    """A hook that stays behind: a copied or pickled model gets one of the standard library's that does nothing."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def __call__(self, *args: Any) -> None:
        self._call(*args)

    def __deepcopy__(self, memo: Any) -> Any:
        return _NOTHING.debug

    def __reduce__(self) -> Any:
        return getattr, (_NOTHING, "debug")


_NOTHING = logging.getLogger("gpu_plan.executor.runner.hooks.registry")
_NOTHING.setLevel(logging.CRITICAL)
