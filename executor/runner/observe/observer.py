"""Looks at the models when they are found and when the first step has ended: what the job really is."""

from collections import Counter
from typing import Any

from gpu_plan.executor.runner.figures.ledger import Row
from gpu_plan.executor.runner.figures.losses import CudaLosses
from gpu_plan.executor.runner.memory.cuda import CudaMemory
from gpu_plan.executor.runner.observe import actual, resized
from gpu_plan.executor.runner.observe.expected import check_parameters
from gpu_plan.executor.runner.observe.forwards import Forwards
from gpu_plan.executor.runner.recorder import Recorder
from gpu_plan.executor.runner.snapshot import Snapshot

MAX_SEARCHES = 8


class Observer:
    """Joins torch, the recorder and the models."""

    def __init__(self, torch: Any, recorder: Recorder) -> None:
        self.forwards = Forwards(torch, recorder)
        self._torch, self._recorder = torch, recorder
        self._verified = False
        self._micro_batches: Counter[int] = Counter()
        self._optimizers: dict[str, None] = {}
        self._searches = 0
        self._groups: list[Any] = []
        self._snapshot = Snapshot(torch, recorder) if recorder.options.oom_snapshot else None

    def install(self) -> None:
        """Joins the recorder."""
        recorder = self._recorder
        recorder.model_found = self._model_found
        recorder.training_begins = self._training_begins
        recorder.micro_batch_ended = self.forwards.backward_ended
        recorder.before_backward = self._before_backward
        recorder.step_ended.append(self._step_ended)
        self.forwards.search()

    def verify(self, *models: Any) -> None:
        """Raises ParameterMismatch where the models are not the planned one; the first look decides."""
        if models and not self._verified:
            check_parameters(self._recorder.options, *models)
            self._verified = True

    def stack(self, name: str) -> None:
        """Who runs the loop; a Trainer, which makes an Accelerator of its own, outranks that."""
        order = ("plain", "accelerate", "lightning", "trainer")
        known = self._recorder.actual.get("stack", "plain")
        if order.index(name) >= order.index(known):
            self._recorder.actual["stack"] = name

    def enable_checkpointing(self, model: Any) -> None:
        """Switches activation checkpointing on where the plan has it, the model can and nobody has done it yet."""
        if self._recorder.options.checkpointing != "full" or actual.says_checkpointing([model]):
            return
        enable = getattr(model, "gradient_checkpointing_enable", None)
        if enable is None:
            self._recorder.note(f"activation checkpointing is planned; {type(model).__name__} has no switch for it")
            return
        try:
            enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        except Exception as error:
            self._recorder.failed("switching activation checkpointing on", error)

    def _training_begins(self) -> None:
        recorder, cuda = self._recorder, self._torch.cuda
        if not cuda.is_initialized():
            return
        device = int(cuda.current_device())
        recorder.memory = CudaMemory(self._torch, device)
        recorder.losses = CudaLosses(self._torch)
        if self._snapshot is not None:
            self._snapshot.begin()

    def _model_found(self, model: Any) -> None:
        self._recorder.actual.setdefault("stack", "plain")
        inner = list(actual.layers(model))[-1]
        self.enable_checkpointing(inner)
        self._inspect()

    def _before_backward(self) -> None:
        """All models of the first micro batch are known."""
        if not self._verified and self.forwards.roots:
            self.verify(*self.forwards.training_now())

    def _inspect(self) -> None:
        roots = self.forwards.training_now()
        if roots:
            self._recorder.actual.update(actual.inspect_models(roots, self.forwards.autocast))
            self._recorder.actual["parameters_per_added_token"] = resized.per_token()

    def _step_ended(self, row: Row, optimizer: Any, new: bool) -> None:
        recorder = self._recorder
        self._optimizers.setdefault(actual.optimizer_name(optimizer))
        recorder.actual["optimizers"] = list(self._optimizers)
        if not new:
            return
        self._micro_batches[row.micro_batches] += 1
        recorder.actual["gradient_accumulation_steps"] = self._micro_batches.most_common(1)[0][0]
        if recorder.ledger.count == 1:
            self._inspect()
            recorder.actual["checkpointing"] = self._checkpointing()
            # A script that destroys its groups and then lets go of its model frees gloo's last reference with the
            # interpreter locked; gloo's thread waits for that lock, and both for ever. Held until the process ends.
            self._groups += actual.gloo_groups()
            recorder.actual["compiled"] = actual.runs_compiled(self.forwards.training_now())
        if row.samples is None and self._searches < MAX_SEARCHES:
            self._searches += 1  # another model is trained now, or it takes no tensors
            self.forwards.search()
        else:
            self.forwards.settle()

    def _checkpointing(self) -> bool | None:
        """What the first backward pass did; a compiled model recomputes without a module's call."""
        roots = self.forwards.training_now()
        if self.forwards.recomputed:
            return True
        if not roots:
            return None
        return actual.says_checkpointing(roots) if actual.is_compiled(roots) else False
