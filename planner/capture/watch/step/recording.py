"""Watches the script's loop and records its first training step: forward, loss and backward, as the user wrote them."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from gpu_plan.planner.capture.answers.host_values import HostValues
from gpu_plan.planner.capture.answers.orders import Order
from gpu_plan.planner.capture.answers.placement import Placement, settle
from gpu_plan.planner.capture.watch.evaluations import Evaluations
from gpu_plan.planner.capture.watch.names import other_name
from gpu_plan.planner.capture.watch.passages import Passages
from gpu_plan.planner.capture.watch.step.given import (
    lengths_listed,
    micro_batch_of,
    named_tensors,
    samples_of,
    sequence_of,
    tokens_of,
)
from gpu_plan.planner.capture.watch.step.wholes import frozen_whole, running_whole
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.trace.events import Mark
from gpu_plan.planner.trace.inputs.known import KnownValues
from gpu_plan.planner.trace.kernels.temporaries import KernelProfile
from gpu_plan.planner.trace.recording.fit import Recording
from gpu_plan.planner.trace.recording.host_reads import HostReads
from gpu_plan.planner.trace.recording.modules import ModuleTracker
from gpu_plan.planner.trace.recording.recorder import Held, Recorder, keep_gradients


class StepRecorder:
    """A state machine over global hooks: waiting, in forward, before backward, after backward, done.

    `prepare(model)` is called once, before the first training forward, to impose what a strategy computes in;
    `around()` is a context for every training forward; `origin()` names the user's line that runs now;
    `batch_size()` is that of the loader whose batch came last, `batches()` how many have come.
    """

    def __init__(
        self,
        *,
        known: KnownValues,
        reads: HostReads,
        profile: KernelProfile,
        prepare: Callable[[nn.Module], None],
        around: Callable[[], contextlib.AbstractContextManager[None]],
        placement: Placement,
        origin: Callable[[], str],
        batch_size: Callable[[], int | None] = lambda: None,
        batches: Callable[[], int] = lambda: 0,
        completions: Callable[[], int] = lambda: 0,
    ) -> None:
        self._known, self._reads, self._profile, self._prepare = known, reads, profile, prepare
        self._around, self._placement, self._origin = around, placement, origin
        self._batch_size, self._batches, self._completions = batch_size, batches, completions
        self._began, self._optimized = 0, False
        self.each = 1
        """Backward passes of one micro step; more than one where several models each have theirs."""
        self.samples = 1
        """Samples of the recorded micro batch, as the loader that gave them counts."""
        self._idle: HostValues | None = None
        self._recorder: Recorder | None = None
        self._tracker: ModuleTracker | None = None
        self._stack = contextlib.ExitStack()
        self._gradients: list[Any] = []
        self._parameters = 0
        self._tentative = False
        """Whether the recorded model is in evaluation mode: one in training mode takes its place."""
        self._depth = 0
        self._in_backward = False
        self._inputs: dict[str, torch.Tensor] = {}
        self._beside: list[torch.Tensor] = []
        """What else of the batch lies on the device."""
        placement.joined = self._lay_beside
        self.model: nn.Module | None = None
        self.others: list[nn.Module] = []
        """Further models of the same step: trained by one backward pass, or frozen beside it."""
        self._aside: list[nn.Module] = []
        """Models that ran without training before the step: a teacher's place on the device is taken as well."""
        self.evaluations = Evaluations()
        self.passages = Passages(known, reads, profile, origin, prepare, self._awake)
        self.backward_passes = 0
        self.forward_passes = 0
        self.afterwards: Callable[[], None] | None = None
        """Called before each forward pass of the model once the recording is done."""
        self.met: Callable[[nn.Module], None] = lambda _: None
        """Called before each outermost forward pass of a model."""
        self.joined: Callable[[], None] = lambda: None
        """Called when a further model joins the step."""
        self.retained: Callable[[], None] = lambda: None
        """Called when a backward pass is told to keep its graph."""
        self.done = False
        self.turns: Callable[[], bool] = lambda: False
        """Whether optimizers take turns: asked when the first backward pass has ended."""
        self.open = False
        """Whether what follows the first backward pass is recorded too, until the last optimizer has stepped."""
        self._order = Order()
        self._ready_at: dict[int, int] = {}
        """The recorded gradient of each parameter of the models, in an iteration of several backward passes."""

    # -- installation ------------------------------------------------------------------------------

    def install(self) -> None:
        """Puts the hooks in place, for the rest of the process."""
        call, backward = nn.Module.__call__, torch.autograd.backward

        def watched_call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self._depth or self._in_backward:  # inside a forward, or a recomputation
                return call(module, *args, **kwargs)
            self._depth = 1
            try:
                args, kwargs = self._before_forward(module, args, kwargs)
                with self._around() if _trains(module) else contextlib.nullcontext(), self._in_order(module):
                    out = self._run(module, lambda: call(module, *args, **kwargs), (args, kwargs))
            finally:
                self._depth = 0
            self._after_forward(module)
            return out

        def watched_backward(*args: Any, **kwargs: Any) -> Any:
            if self._depth or self._in_backward:  # a loss that caches gradients: one inside its forward, or its hook's
                return backward(*args, **kwargs)
            self._before_backward()
            self._in_backward = True
            try:
                out = backward(*args, **kwargs)
            finally:
                self._in_backward = False
            self._after_backward()
            return out

        def noted_backward(*args: Any, **kwargs: Any) -> Any:
            # Beyond watched_backward no line is the model's: the user's call is looked up on this side of it.
            if _retains(args, kwargs):
                self.retained()
            return watched_backward(*args, **kwargs)

        self._stack.enter_context(mock.patch.object(nn.Module, "__call__", watched_call))
        self._stack.enter_context(mock.patch.object(torch.autograd, "backward", noted_backward))
        self._rest()

    def _in_order(self, module: nn.Module) -> contextlib.AbstractContextManager[None]:
        """Around the recorded model's forward: its layers may say that time comes before samples."""
        root = inner_model(module)
        if root is not self.model or self.backward_passes:
            return contextlib.nullcontext()
        return self._order.watching(root, self._inputs, self._batch_size())

    def _rest(self) -> None:
        self._idle = HostValues(self._known, self._reads)
        self._idle.__enter__()

    def _wake(self) -> None:
        if self._idle is not None:
            self._idle.__exit__(None, None, None)
            self._idle = None

    @contextlib.contextmanager
    def _awake(self) -> Iterator[None]:
        """For a recording between passes: what answers there steps aside."""
        self._wake()
        self._placement.recording = True
        try:
            yield
        finally:
            self._placement.recording = False
            self._rest()

    def _run(self, module: nn.Module, call: Callable[[], Any], given: Any) -> Any:
        """`call()`; before the step an evaluation that was seen may be left out."""
        if self.model is not None:
            return call()
        root = inner_model(module)
        if torch.is_grad_enabled() or next(root.parameters(), None) is None:
            return self.evaluations.run(module, call, given)
        rows = micro_batch_of(dict(named_tensors(*given)))
        return self.passages.run(root, lambda: self.evaluations.run(module, call, given), rows)

    # -- hooks ---------------------------------------------------------------------------------------

    def _before_forward(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Of an outermost call: what it is given instead, all of it where the planned device is."""
        root = running_whole(inner_model(module), sys._getframe(2))
        if any(parameter.device.type == "meta" for parameter in root.parameters()):
            settle(root, self._known)
            args, kwargs = tree_map_only(torch.Tensor, self._placement.twin, (args, kwargs))
            self.met(root)
        if next(root.parameters(), None) is None:
            return args, kwargs
        if self.done and self.afterwards is not None and root is self.model:
            self.afterwards()
        if self._tentative and self.backward_passes == 0 and root.training and _trains(root):
            self._abandon(root)
        if root is self.model and self._recorder is not None and not self.backward_passes and self._recorder.is_empty:
            self._abandon(root)  # what it gave has been let go, printed or looked at: no pass back can come of it
        gone = self._recorder is not None and self.backward_passes and not self.open
        if gone and _trains(root) and self._gradients_gone():
            self._start_anew()
        if self.open and root is self.model and self._micro_step_is_over():
            self._end_micro_step()
        if self.model is None and _trains(root):
            self._begin(root, args, kwargs)
        elif self.model is None:
            if not self._aside:
                self.joined()
            self._aside.append(frozen_whole(root))
        elif self._recorder is not None and (self.open or not self.backward_passes) and not self._holds(root):
            self._join(frozen_whole(root))
        self.forward_passes += root is self.model
        return args, kwargs

    def _after_forward(self, module: nn.Module) -> None:
        if self._recorder is None or self.backward_passes:
            return
        if running_whole(inner_model(module), sys._getframe(2)) is self.model:
            self._recorder.mark(Mark.OUTPUTS_BOUND)

    def _abandon(self, trained: nn.Module) -> None:
        """What was recorded was of a model in evaluation mode, and here comes one in training mode."""
        assert self._recorder is not None
        assert self._tracker is not None
        for part in (self._recorder, self._tracker):
            part.__exit__(None, None, None)
        for handle in self._gradients:
            handle.remove()
        beside = [model for model in (self.model, *self.others) if model is not None and model is not trained]
        self._aside = [*beside, *(model for model in self._aside if model not in beside)]
        self._gradients, self.others, self._parameters = [], [], 0
        self._recorder = self._tracker = self.model = None
        self._placement.recording = self._tentative = False
        self.forward_passes = 0
        self._rest()

    def _gradients_gone(self) -> bool:
        """Whether the passes so far have left nothing: they measured something, and no step will be made of them."""
        models = [one for one in (self.model, *self.others) if one is not None]
        return all(parameter.grad is None for one in models for parameter in one.parameters())

    def _start_anew(self) -> None:
        """Passes whose gradients were thrown away are no part of a step: LoRA-GA estimates so before it trains."""
        for handle in self._gradients:
            handle.remove()
        self._gradients, self._aside, self.others, self._parameters = [], [], [], 0
        self._recorder = self._tracker = self.model = None
        self._tentative = False
        self.backward_passes = self.forward_passes = 0

    def start_over(self) -> None:
        """What was recorded no optimizer trains: gradients were looked at, or compared, before the loop."""
        if self.backward_passes and not self.open:
            self._start_anew()

    def _micro_step_is_over(self) -> bool:
        """Whether a further batch has come, all that is trained has gradients, and no optimizer has stepped: models
        with an optimizer each accumulate."""
        trained = [one for one in (self.model, *self.others) if one is not None and _any_trained(one)]
        ready = all(any(p.grad is not None for p in one.parameters()) for one in trained)
        return self._batches() > self._began and ready and not self._optimized

    def _end_micro_step(self) -> None:
        assert self._recorder is not None
        self.open, self.each = False, self.backward_passes
        self._recorder.mark(Mark.BACKWARD_END)
        self._close()

    def _begin(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.model = model
        # from_pretrained leaves a model in evaluation mode, and many a script trains it so.
        self._tentative = not model.training
        self._prepare(model)
        self._wake()
        self._began = self._batches()
        self._inputs = dict(named_tensors(args, kwargs))
        self.samples = samples_of(
            micro_batch_of(self._inputs), self._batch_size(), lengths_listed((args, kwargs)), self._completions()
        )
        self._tracker = ModuleTracker(model)
        self._recorder = Recorder(self._tracker, self._profile, self._reads, origin=self._origin)
        self._recorder.know([*model.parameters(), *model.buffers(), *self._inputs.values()])
        self._beside = []
        self._placement.begin()
        for tensor in self._placement.brought():
            self._lay_beside(tensor)
        self._watch_gradients(model)
        for other in self._aside:
            if not self._holds(other):
                self._join(other)
        self._tracker.__enter__()
        self._recorder.__enter__()
        self._placement.recording = True
        self._recorder.mark(Mark.FORWARD)

    def _lay_beside(self, tensor: torch.Tensor) -> None:
        """Part of the batch that the model is not given: its loss is, and it lies on the device all the while."""
        if self._recorder is not None and not self._recorder.knows(tensor):
            self._recorder.know([tensor])
            self._beside.append(tensor)

    def _holds(self, root: nn.Module) -> bool:
        """Whether a module is one of the models, or a part of one that is called by itself."""
        models = [self.model, *self.others]
        return any(root is module for model in models if model is not None for module in model.modules())

    def _join(self, model: nn.Module) -> None:
        """A further model of the step, trained or frozen: its parameters follow those of the first."""
        assert self._recorder is not None
        assert self._tracker is not None
        self.joined()
        if any(parameter.requires_grad for parameter in model.parameters()):
            self._prepare(model)
        self.others.append(model)
        self._recorder.know([*model.parameters(), *model.buffers()])
        self._tracker.add(model, other_name(len(self.others)))
        self._watch_gradients(model)

    def _watch_gradients(self, model: nn.Module) -> None:
        for parameter in model.parameters():
            if parameter.requires_grad:
                self._gradients.append(parameter.register_post_accumulate_grad_hook(self._ready(self._parameters)))
            self._parameters += 1

    def _ready(self, index: int) -> Callable[[torch.Tensor], None]:
        def ready(parameter: torch.Tensor) -> None:
            # Later passes of an accumulation add to gradients that the recorded pass has made.
            recorded = self.open or self.backward_passes == 0
            if self._recorder is None or not recorded or parameter.grad is None:
                return
            if index in self._ready_at:
                self._ready_at[index] = self._recorder.gradient_again(index, parameter.grad, self._ready_at[index])
            else:
                self._ready_at[index] = self._recorder.gradient_ready(index, parameter.grad)

        return ready

    def _before_backward(self) -> None:
        if self._recorder is None or self._tracker is None or (self.backward_passes and not self.open):
            return
        self._tracker.start_backward()
        if not self.backward_passes:
            self._recorder.mark(Mark.BACKWARD)

    def _after_backward(self) -> None:
        self.backward_passes += self.model is not None
        if self._recorder is None or self._tracker is None or (self.backward_passes > 1 and not self.open):
            return
        self._tracker.end_backward()
        self.open = self.open or self.turns()
        if not self.open:
            self._recorder.mark(Mark.BACKWARD_END)
            # Deaths are still noted; what the loop makes from here on is the loop's own business.
            self._close()

    def _close(self) -> None:
        assert self._recorder is not None
        self._recorder.__exit__(None, None, None)
        self._placement.recording = False
        self._rest()

    def pause(self) -> None:
        """An optimizer steps: what it makes is its strategy's. Of use where `open`."""
        self._optimized = True
        if self.open and self._placement.recording:
            self._close()

    def resume(self) -> None:
        """It has stepped, and another one's turn comes."""
        assert self._recorder is not None
        self._wake()
        self._recorder.__enter__()
        self._placement.recording = True

    # -- the end -------------------------------------------------------------------------------------

    def alive(self) -> list[Held]:
        """What stands at the end of the step and is no gradient; asked before `finish`."""
        return [] if self._recorder is None else self._recorder.alive()

    def finish(self) -> Recording:
        """The recorded micro step. InputError where there was no forward or no backward."""
        if self._recorder is None or self.backward_passes == 0:
            raise InputError("the script takes an optimizer step before any backward pass of a model in training mode")
        if self.open:
            self._recorder.mark(Mark.BACKWARD_END)
        raw = self._recorder.finish()
        if self.open or len(self.others) > 0:
            keep_gradients(raw)
        for handle in self._gradients:
            handle.remove()
        self._recorder = None
        self.done = True
        if self._order.time_first:
            self.samples = int(next(tensor for tensor in self._inputs.values() if tensor.dim() > 1).shape[1])
        batch = self.samples
        sizes = tuple((name, tensor.untyped_storage().nbytes()) for name, tensor in self._inputs.items())
        sizes += tuple(("batch", tensor.untyped_storage().nbytes()) for tensor in self._beside)
        return Recording(micro_batch=batch, raw=raw, inputs=sizes, tokens=tokens_of(self._inputs), notes=())

    @property
    def rows(self) -> int:
        """Of what the model was given; its second dimension where time comes first."""
        return self.samples if self._order.time_first else micro_batch_of(self._inputs)

    @property
    def seq_len(self) -> int | None:
        """Tokens of a sample, where the inputs are tokens; their first dimension where time comes first."""
        found = sequence_of(self._inputs)
        if found is None or not self._order.time_first:
            return found
        return int(next(tensor for tensor in self._inputs.values() if tensor.dim() > 1).shape[0])

    @property
    def inputs(self) -> dict[str, torch.Tensor]:
        """What the model was given, by name."""
        return dict(self._inputs)


def inner_model(module: nn.Module) -> nn.Module:
    """The user's model inside wrappers that hold it as `module`."""
    names = ("DistributedDataParallel", "FullyShardedDataParallel", "DataParallel", "DeepSpeedEngine")
    while type(module).__name__ in names and isinstance(getattr(module, "module", None), nn.Module):
        module = module.module
    return module


def _any_trained(module: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


def _trains(module: nn.Module) -> bool:
    return torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters())


def _retains(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether torch.autograd.backward(tensors, grad_tensors, retain_graph, ...) is told to keep the graph."""
    return bool(kwargs.get("retain_graph", args[2] if len(args) > 2 else False))
