"""Whether the script has resized its model's embeddings, as adding a pad token does, and what one token adds."""

import functools
from typing import Any

from gpu_plan.executor.runner.observe.actual import Counts

_PER_TOKEN: list[int] = []
"""Parameters that one more token brings, by resized model; models are resized in turn, once each as a rule."""


def watch(module: Any) -> None:
    """Notes `resize_token_embeddings` of transformers.modeling_utils."""
    owner = module.PreTrainedModel
    original = owner.resize_token_embeddings

    @functools.wraps(original)
    def resized(model: Any, *args: Any, **kwargs: Any) -> Any:
        rows, elements = _size(model)
        made = original(model, *args, **kwargs)
        rows_after, elements_after = _size(model)
        if rows_after != rows:
            _PER_TOKEN.append((elements_after - elements) // (rows_after - rows))
        else:
            _PER_TOKEN.append(_of_one(model))
        return made

    owner.resize_token_embeddings = resized


def _size(model: Any) -> tuple[int, int]:
    counts = Counts()
    counts.add(model)
    return int(model.get_input_embeddings().weight.shape[0]), counts.total


def _of_one(model: Any) -> int:
    """Of a model that kept its size: a row of the embedding, and one of a head of its own."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    tied = head is None or head.weight is embedding.weight
    return int(embedding.weight.shape[1]) * (1 if tied else 2)


def per_token() -> int | None:
    """Parameters that one token brings to the model that was resized last; None where none was."""
    return _PER_TOKEN[-1] if _PER_TOKEN else None


def explains(difference: int) -> bool:
    """Whether tokens alone make this difference in parameters."""
    return any(one > 0 and difference % one == 0 for one in _PER_TOKEN)
