"""Which tied weights a checkpoint holds a second time, and whether its head is there, as far as its headers or the
catalog say."""

from collections.abc import Mapping, Sequence

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.catalog_index import find_entry
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.model.spec import ParameterSpec


def stored_copies(source: ModelSource, parameters: Sequence[ParameterSpec], *, quantised: bool) -> Mapping[str, str]:
    """Second names of tied weights that are tensors of their own in the checkpoint, and the first names.

    By safetensors headers where they are at hand. Of a catalog model loaded as it was published, the published count
    of elements tells: it has all tied weights twice or none. A quantised checkpoint is another file than that.
    """
    tied = {parameter.name: parameter for parameter in parameters if parameter.tied_to is not None}
    if source.stored is not None:
        held = source.stored.entries
        return {name: p.tied_to for name, p in tied.items() if p.tied_to in held and name in held and p.tied_to}
    entry = find_entry(source.id) if source.kind == "catalog" and not quantised else None
    if entry is None or entry.published_params is None or entry.meta_params is None:
        return {}
    twice = entry.published_params - entry.meta_params == sum(p.numel for p in tied.values())
    return {name: p.tied_to for name, p in tied.items() if p.tied_to} if twice else {}


_HEAD = "lm_head"


def check_head(source: ModelSource, parameters: Sequence[ParameterSpec]) -> None:
    """InputError for a checkpoint whose model has a head of its own that none of its files holds, packed or not:
    transformers would draw it at random (modeling_utils.py: _initialize_missing_keys)."""
    own = any(one.name.rpartition(".")[0].rpartition(".")[2] == _HEAD and one.tied_to is None for one in parameters)
    if not own or source.stored is None or any(_HEAD in name.split(".") for name in source.stored.entries):
        return
    raise InputError(
        f"{source.id}: none of its files holds {_HEAD}, and tie_word_embeddings is false: fetch the file that has it, "
        "or say tie_word_embeddings in config.json if the embedding is the head"
    )
