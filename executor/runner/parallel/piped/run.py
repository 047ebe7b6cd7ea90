"""A training call of a model that is cut into stages: one step of the schedule, all micro batches there and back.

torch.distributed.pipelining (torch 2.13, schedules.py: step) runs forward and backward of all micro batches in one
call. Here that call is the model's own: the script gives it the samples of a whole step, gets the loss, and finds the
gradients as soon as it calls `backward()` on it. Losses of micro batches are sums over the tokens of all of them, so
that what comes out is the mean that the class itself would have given for the batch.
"""

import functools
import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from weakref import ref

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gpu_plan.executor.runner.parallel.piped.evaluate import evaluated
from gpu_plan.executor.runner.parallel.piped.gradients import Step, loss_of
from gpu_plan.executor.runner.parallel.piped.layout import Layout
from gpu_plan.executor.runner.parallel.piped.spreading import Mesh, sharded, shared, with_first_weights
from gpu_plan.executor.runner.parallel.piped.weights import whole_weights
from gpu_plan.executor.runner.parallel.samples import digest
from gpu_plan.planner.pipeline.stages import StageCut
from gpu_plan.planner.trace.parallel.stages import keep, layer_list, part_of, stage_loss, untie

_LOOKS = 2
"""Training calls in which the ranks of a pipeline compare their samples."""
_IGNORED = -100
_OF_SEVERAL = ("ScheduleInterleaved1F1B", "ScheduleInterleavedZeroBubble")
"""Schedules that take a list of stages, be it of one."""
_UNUSED = frozenset({"return_dict", "use_cache"})
_EVERY_STAGE = frozenset({"attention_mask", "position_ids"})
"""Tensors of a call, by sample, that every stage is given."""


class PipedModel:
    """Cuts `model`, in place, to this rank's stages; CannotSplitError for a class that cannot be cut."""

    def __init__(self, model: Any, layout: Layout) -> None:
        layers = len(layer_list(model)[1])
        cuts = [StageCut(first=first, end=end, layers=layers) for first, end in layout.stages]
        self.layout = layout
        self.mesh = Mesh(layout)
        self.numbers = [index * layout.ranks + self.mesh.place for index in range(layout.local)]
        own = [cuts[number] for number in self.numbers]
        whole = [(each.numel(), each.requires_grad, str(each.dtype)) for each in model.parameters()]
        with_first_weights(model, self.mesh)
        if layout.together > 1:
            untie(model)
            shared(model, self.mesh)
        self.parts: list[Any] = [part_of(model, cut) for cut in own]
        keep(model, own)
        self._ref = ref(model)
        self.config = model.config
        self.hidden = getattr(torch, layout.compute) if layout.compute else model.dtype
        self._tied = self._shared_weight(cuts)
        if layout.data == "sharded":
            model.to(self.mesh.device)
            self.parts = [sharded(part, layout, self.mesh) for part in self.parts]
        for each in model.parameters():
            each._pipeline_mesh = self.mesh
        if self._tied is not None and not self._is_first:
            self._tied()._counted_elsewhere = True
        self._made: tuple[Any, Any] | None = None
        self._ready = False
        self._looks = 0
        self._items: Any = 1
        self._under: torch.dtype | None = None
        model._pipeline = self
        model._whole_parameters = whole
        model.forward = self._forward(model.forward)
        model.generate = _refuses("generate")
        self._gathered: dict[str, Tensor] | None = None
        model.save_pretrained = self._save_pretrained(model.save_pretrained)

    def _model(self) -> Any:
        """The model that the script holds."""
        return self._ref()

    @property
    def _is_first(self) -> bool:
        return self.numbers[0] == 0

    @property
    def _is_last(self) -> bool:
        return self.numbers[-1] == len(self.layout.stages) - 1

    # -- its weights ---------------------------------------------------------------------------------------------

    def whole_weights(self) -> dict[str, Tensor]:
        """Of all stages, on the first rank's host; every rank calls it."""
        return whole_weights(self._model(), self.mesh.pipeline, self.mesh.device)

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """While all ranks save: what one of them writes is the whole model. Every rank enters."""
        self._gathered = self.whole_weights()
        try:
            yield
        finally:
            self._gathered = None

    def _save_pretrained(self, original: Any) -> Any:
        """A rank alone has some of the layers: they would be written as if they were the model."""

        @functools.wraps(original)
        def save_pretrained(*args: Any, **kwargs: Any) -> Any:
            if self._gathered is not None:
                kwargs["state_dict"] = self._gathered
            if kwargs.get("state_dict") is None:
                raise RuntimeError(
                    "save_pretrained on a rank of a pipeline would write its stage alone: call accelerator.save_model,"
                    " or the Trainer's save_model, on every rank"
                )
            return original(*args, **kwargs)

        return save_pretrained

    # -- the model's call ----------------------------------------------------------------------------------------

    def _forward(self, original: Any) -> Any:
        names = list(inspect.signature(original).parameters)

        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            given = {**dict(zip(names, args, strict=False)), **kwargs}
            ids, labels = given.pop("input_ids", None), given.pop("labels", None)
            items = given.pop("num_items_in_batch", None)
            words = self._words(given)
            if ids is None:
                raise RuntimeError("a model in pipeline stages takes input_ids: inputs_embeds are its stages' own")
            model = self._model()
            if not (torch.is_grad_enabled() and model.training):
                return self._evaluated(ids, labels, words)
            if labels is None:
                raise RuntimeError(
                    "a model in pipeline stages computes its loss on the last of them: call it with labels and train"
                    " on its .loss, or plan without --pp"
                )
            self._compare(ids, labels)
            value, step = self._trained(ids, labels, words, items)
            return PipedOutput(loss=loss_of(step, value))

        return forward

    def _words(self, given: dict[str, Any]) -> dict[str, Tensor]:
        """What each stage is told; RuntimeError for an argument that no stage can be given."""
        found = {}
        for name, value in given.items():
            if value is None or value is False or name in _UNUSED:
                continue
            if name not in _EVERY_STAGE or not isinstance(value, Tensor):
                raise RuntimeError(f"a model in pipeline stages is called without {name}: its stages could not have it")
            found[name] = value
        return found

    def _compare(self, ids: Tensor, labels: Tensor) -> None:
        """RuntimeError where ranks of a pipeline see different samples: what comes out would belong to none."""
        if self._looks >= _LOOKS:
            return
        self._looks += 1
        seen: list[Any] = [None] * self.layout.world_size
        dist.all_gather_object(seen, (self.mesh.data_place, digest([ids, labels])))
        if len(set(seen)) > self.layout.pipelines:
            raise RuntimeError(
                "the ranks of a pipeline see different samples: share the data out by the data parallel rank alone"
                " (torch's DistributedSampler does), and seed what shuffles it alike on every rank"
            )

    # -- training ----------------------------------------------------------------------------------------------------

    def _trained(self, ids: Tensor, labels: Tensor, words: dict[str, Tensor], items: Any) -> tuple[Tensor, Step]:
        """One step of the schedule: the loss, on every rank, and its gradients, set aside."""
        self._make_ready()
        count, kind = self._micro_batches(len(ids))
        schedule = self._schedule(kind, count, len(ids) // count, ids.shape[1])
        self._items = items if items is not None else (labels[..., 1:] != _IGNORED).sum()
        losses: list[Tensor] = []
        step = Step(each for part in self.parts for each in part.parameters())
        with _backward_unseen(), self._outside_autocast(ids.device.type):
            schedule.step(
                *((ids,) if self._is_first else ()),
                target=labels if self._is_last else None,
                losses=losses,
                return_outputs=False,
                **words,
            )
        self._add_tied()
        step.set_aside()
        value = torch.stack(losses).sum() if losses else torch.zeros((), device=ids.device)
        value = value.detach().float()
        dist.broadcast(value, group=self.mesh.pipeline, group_src=self.layout.ranks - 1)
        return value, step

    def _make_ready(self) -> None:
        """Before the first call, when the script has put the model where it is to be."""
        if self._ready:
            return
        self._ready = True
        self.mesh.device = next(self.parts[0].parameters()).device
        if self.layout.data == "averaged":
            group = self.mesh.data
            self.parts = [nn.parallel.DistributedDataParallel(part, process_group=group) for part in self.parts]

    def _micro_batches(self, rows: int) -> tuple[int, str]:
        """Into how many a batch is cut, and by which schedule: one that is not whole, at the end of the data, goes
        through row by row, as GPipe has it, which asks for no number of them."""
        if rows % self.layout.micro_batches == 0:
            return self.layout.micro_batches, self.layout.schedule
        if self.layout.local > 1 or self.layout.schedule in _OF_SEVERAL:
            raise RuntimeError(
                f"a batch of {rows} samples is not cut into {self.layout.micro_batches} micro batches, which"
                f" {self.layout.schedule} needs: give the DataLoader drop_last=True"
            )
        return rows, "ScheduleGPipe"

    def _schedule(self, kind: str, count: int, rows: int, length: int) -> Any:
        """Torch's, with buffers for micro batches of [rows, length]; the last one made is kept."""
        device = self.mesh.device.type
        under = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        key = (kind, count, rows, length, under)
        if self._made is None or self._made[0] != key:
            self._made = None
            from torch.distributed.pipelining import schedules

            stages = [self._stage(part, number, rows, length, under) for part, number in self._numbered()]
            given = stages if kind in _OF_SEVERAL else stages[0]
            made = getattr(schedules, kind)(given, n_microbatches=count, loss_fn=self._loss, scale_grads=False)
            self._made = (key, made)
        self._under = under
        return self._made[1]

    def _numbered(self) -> Iterator[tuple[Any, int]]:
        yield from zip(self.parts, self.numbers, strict=True)

    def _stage(self, part: Any, number: int, rows: int, length: int, under: torch.dtype | None) -> Any:
        from torch.distributed.pipelining import PipelineStage

        last = len(self.layout.stages) - 1

        def like(*more: int, dtype: torch.dtype) -> Tensor:
            return torch.empty(rows, length, *more, dtype=dtype, device="meta")

        width, vocabulary = self.config.hidden_size, self.config.vocab_size
        taken = like(dtype=torch.int64) if number == 0 else like(width, dtype=self.hidden).requires_grad_()
        logits = like(vocabulary, dtype=under or self.hidden)
        put_out = logits if number == last else like(width, dtype=self.hidden)
        return PipelineStage(
            _under_autocast(part, self) if under is not None else part,
            number,
            last + 1,
            self.mesh.device,
            input_args=taken,
            output_args=put_out.requires_grad_(),
            group=self.mesh.pipeline,
        )

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        with self.again_autocast():
            return stage_loss(self._model(), logits, labels, self._items)

    @contextmanager
    def _outside_autocast(self, device: str) -> Iterator[None]:
        """The script's region is around the whole schedule, backward too; torch wants forward alone in it."""
        if self._under is None:
            yield
            return
        with torch.autocast(device, enabled=False):
            yield

    def again_autocast(self) -> AbstractContextManager[Any]:
        """The script's own region, for a stage's forward."""
        if self._under is None:
            return nullcontext()
        region: AbstractContextManager[Any] = torch.autocast(self.mesh.device.type, dtype=self._under)
        return region

    # -- weights that both ends hold -------------------------------------------------------------------------------

    def _shared_weight(self, cuts: list[StageCut]) -> Any:
        """A function that gives this rank's copy of the weight that embedding and head share; None where it has none,
        or where one rank holds both."""
        model = self._model()
        ends = self._is_first != self._is_last
        if not self.config.tie_word_embeddings or not ends or self.layout.ranks == 1:
            self._ends = None
            if self.config.tie_word_embeddings and self.layout.ranks > 1:
                self.mesh.ends()  # all ranks make the group
            return None
        self._ends = self.mesh.ends()
        owner = model.get_input_embeddings() if self._is_first else model.lm_head
        return lambda: owner.weight

    def _add_tied(self) -> None:
        """Sums its gradients, so that both copies go on to be one weight."""
        if self._tied is None:
            return
        weight = self._tied()
        if hasattr(weight, "placements"):
            # The embedding's is what each rank has of the sum, for the whole vocabulary; the head's lies as its weight.
            weight.grad = weight.grad.redistribute(placements=weight.placements)
        gradient = weight.grad
        local = gradient.to_local() if hasattr(gradient, "to_local") else gradient
        dist.all_reduce(local, group=self._ends)

    # -- without gradients -------------------------------------------------------------------------------------------

    def _evaluated(self, ids: Tensor, labels: Tensor | None, words: dict[str, Tensor]) -> Any:
        from transformers.modeling_outputs import CausalLMOutputWithPast

        model = self._model()
        self.mesh.device = ids.device
        for part in self.parts:
            part.train(model.training)
        sizes = (self.config.hidden_size, self.config.vocab_size)
        group = self.mesh.pipeline
        logits = evaluated(self.parts, self.numbers, self.layout.ranks, group, ids, words, self.hidden, sizes)
        for part in self.parts:
            part.train()
        loss = None if labels is None else stage_loss(model, logits, labels)
        return CausalLMOutputWithPast(loss=loss, logits=logits)


class _Autocast(nn.Module):  # type: ignore[misc]
    """A stage whose forward is in the script's autocast region, and its backward is not."""

    def __init__(self, part: Any, owner: PipedModel) -> None:
        super().__init__()
        self.part = part
        self._owner = ref(owner)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        owner = self._owner()
        assert owner is not None
        with owner.again_autocast():
            found = self.part(*args, **kwargs)
        # As at the end of a region that nothing is around: each micro batch casts its weights anew.
        torch.clear_autocast_cache()
        return found


def _under_autocast(part: Any, owner: PipedModel) -> Any:
    """Around the module that DDP or FSDP2 has wrapped stands nothing: the stage looks at its class."""
    if isinstance(part, nn.parallel.DistributedDataParallel):
        if not isinstance(part.module, _Autocast):
            part.module = _Autocast(part.module, owner)
        return part
    return part if owner.layout.data == "sharded" else _Autocast(part, owner)


class PipedOutput(dict):  # type: ignore[type-arg]
    """What a training call gives: the loss. Logits stand on the last stage alone, micro batch by micro batch."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        if name.startswith("_"):
            raise AttributeError(name)
        raise RuntimeError(
            f"a model in pipeline stages gives its loss alone in training, not {name}: plan without --pp where the loop"
            " reads more"
        )

    def __getitem__(self, key: Any) -> Any:
        return list(self.values())[key] if isinstance(key, int) else super().__getitem__(key)


def _refuses(what: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"a model in pipeline stages cannot {what}: each rank has some of its layers alone")

    return refuse


@contextmanager
def _backward_unseen() -> Iterator[None]:
    """Micro batches' backward passes are the schedule's own: who watches for the script's does not see them."""
    watched = torch.autograd.backward
    torch.autograd.backward = inspect.unwrap(watched)
    try:
        yield
    finally:
        torch.autograd.backward = watched
