"""One stage of a pipeline: transformers' own class without the layers of the other stages.

The embedding stands on the first stage, final norm and head on the last, and every stage computes its positions for
itself. It is what a stage of torch.distributed.pipelining is given, in the trace as in a run: `StageModule` holds the
model, `run_stage` is one forward and backward of it as stage.py (PipelineStage: forward_one_chunk, backward_one_chunk)
runs a micro batch.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from gpu_plan.planner.pipeline.classes import CUT
from gpu_plan.planner.pipeline.stages import StageCut
from gpu_plan.planner.trace.parallel.errors import CannotSplitError

_LISTS = ("layers", "h")
_BEFORE = ("embed_tokens", "wte", "wpe", "drop")
_AFTER = ("norm", "ln_f", "final_layernorm")
_EVERYWHERE = ("rotary_emb",)


class _Skipped(nn.Module):
    """Stands where a layer of another stage was."""

    def forward(self, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return hidden_states


class _NoPositions(nn.Module):
    """Stands where positions were embedded: the first stage has added them."""

    def forward(self, position_ids: torch.Tensor) -> torch.Tensor:
        return torch.zeros((), device=position_ids.device)


class StageModule(nn.Module):
    """A stage: token ids in on the first, hidden states on the others; logits out on the last."""

    def __init__(self, model: Any, stage: StageCut) -> None:
        super().__init__()
        self.model = model
        self.stage = stage

    def forward(self, value: torch.Tensor, **words: torch.Tensor) -> torch.Tensor:
        return stage_output(self.model, self.stage, value, **words)


def stage_output(model: Any, stage: StageCut, value: torch.Tensor, **words: torch.Tensor) -> torch.Tensor:
    """Hidden states [batch, sequence, hidden], or logits on the last stage; `words` are what every layer is told."""
    given: dict[str, Any] = {"input_ids" if stage.is_first else "inputs_embeds": value, "use_cache": False, **words}
    if stage.is_last:
        logits: torch.Tensor = model(**given).logits
        return logits
    hidden: torch.Tensor = getattr(model, model.base_model_prefix)(**given).last_hidden_state
    return hidden


def stage_loss(model: Any, logits: torch.Tensor, labels: torch.Tensor, items: Any = None) -> torch.Tensor:
    """The class's own loss, as its forward computes it: the mean, or the sum over `items` tokens where those count."""
    counted = {} if items is None else {"num_items_in_batch": items}
    loss: torch.Tensor = model.loss_function(
        logits=logits, labels=labels, vocab_size=model.config.vocab_size, **counted
    )
    return loss


def layer_list(model: Any) -> tuple[str, nn.ModuleList]:
    """Name and modules of the layers that stages share out. CannotSplitError, in one line, where there are none."""
    name, kind = type(model).__name__, getattr(getattr(model, "config", None), "model_type", None)
    base: Any = getattr(model, getattr(model, "base_model_prefix", "") or "-", None)
    found = next((key for key in _LISTS if isinstance(getattr(base, key, None), nn.ModuleList)), None)
    if found is None or getattr(model, "lm_head", None) is None:
        raise CannotSplitError(f"{name} has no plain list of layers between an embedding and a head to cut into stages")
    if kind not in CUT:
        raise CannotSplitError(
            f"{name} ({kind}) is not among the classes whose stages were checked: {', '.join(sorted(CUT))}"
        )
    known = {found, *_BEFORE, *_AFTER, *_EVERYWHERE}
    odd = next((key for key, _ in base.named_children() if key not in known), None)
    if odd is not None:
        raise CannotSplitError(f"{name} has a module {odd!r} beside its layers, which no stage is known to need")
    layers: nn.ModuleList = getattr(base, found)
    return f"{model.base_model_prefix}.{found}", layers


def untie(model: Any) -> None:
    """Gives the head a weight of its own where it shares the embedding's, in place: two stages hold it, and a plan by
    which ranks compute them together names what is its own alone."""
    if model.config.tie_word_embeddings:
        own = model.lm_head.weight
        model.lm_head.weight = nn.Parameter(own.detach().clone(), requires_grad=own.requires_grad)


def cut(model: Any, stage: StageCut) -> None:
    """Leaves one stage of `model`, in place; CannotSplitError, in one line, where the class cannot be cut."""
    keep(model, (stage,))


def keep(model: Any, stages: Sequence[StageCut]) -> None:
    """As `cut`, of several stages that one rank holds."""
    _, layers = layer_list(model)
    count = stages[0].layers
    if len(layers) != count:
        raise CannotSplitError(f"{type(model).__name__} has {len(layers)} layers, not {count}")
    base = getattr(model, model.base_model_prefix)
    for index in range(len(layers)):
        if not any(stage.first <= index < stage.end for stage in stages):
            layers[index] = _Skipped()
    if not any(stage.is_first for stage in stages):
        for name in ("embed_tokens", "wte"):
            if hasattr(base, name):
                setattr(base, name, None)
        if hasattr(base, "wpe"):
            base.wpe = _NoPositions()
        if hasattr(base, "drop"):
            base.drop = nn.Identity()
    if not any(stage.is_last for stage in stages):
        for name in _AFTER:
            if hasattr(base, name):
                setattr(base, name, nn.Identity())
        model.lm_head = None


def part_of(model: Any, stage: StageCut) -> StageModule:
    """One stage of `model` in the modules that `model` itself goes on to hold; CannotSplitError as `cut`."""
    name = layer_list(model)[0].rpartition(".")[2]
    part = _shallow(model)
    base = _shallow(getattr(model, model.base_model_prefix))
    setattr(part, model.base_model_prefix, base)
    setattr(base, name, nn.ModuleList(getattr(base, name)))
    cut(part, stage)
    return StageModule(part, stage)


def _shallow(module: Any) -> Any:
    """Another module with the same parts: which ones it has can be changed without touching the first."""
    found = copy.copy(module)
    found.__dict__["_modules"] = dict(module._modules)
    found.__dict__["_parameters"] = dict(module._parameters)
    return found


def stage_inputs(model: Any, stage: StageCut, given: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """What a stage is given for one micro batch: of a batch of the whole model, or from its neighbours."""
    rows, length = given["input_ids"].shape
    like = {"size": (rows, length, model.config.hidden_size), "dtype": dtype, "device": "meta"}
    inputs: dict[str, Any] = {}
    if stage.is_first:
        inputs["input_ids"] = given["input_ids"]
    else:
        inputs["hidden_states"] = torch.empty(**like, requires_grad=True)
    if stage.is_last:
        inputs["labels"] = given["labels"]
    else:
        inputs["output_gradient"] = torch.empty(**like)
    return inputs


def stage_backward(output: torch.Tensor, gradient: torch.Tensor | None, value: torch.Tensor) -> tuple[Any, ...]:
    """torch/distributed/pipelining/_backward.py: stage_backward, itself."""
    from torch.distributed.pipelining._backward import stage_backward as backward

    gradients: tuple[Any, ...] = backward((output,), (gradient,), [value])
    return gradients
