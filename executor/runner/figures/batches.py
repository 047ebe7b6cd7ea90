"""How large a batch is, read from the shapes with which the model is called. Pure: shapes and dtypes only."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_TOKENS = ("input_ids", "decoder_input_ids")
_EMBEDDINGS = ("inputs_embeds",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One call of the model."""

    shape: tuple[int, ...]
    """Of the tensor that was taken: `input_ids` where there is one, else the first."""
    samples: int
    tokens: int | None
    """Positions, padding included; None where the model takes no tokens."""
    sequence_length: int | None


def batch_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Batch | None:
    """The batch in a call's arguments; None where no tensor with a dimension is among them."""
    named: dict[str, Any] = {}
    for name, tensor in _named(args, kwargs):  # of queries and passages, each with input_ids, the queries count
        named.setdefault(name, tensor)
    for name in (*_TOKENS, *_EMBEDDINGS):
        tensor = named.get(name)
        if tensor is not None and len(tensor.shape) >= 2:
            return _batch(tensor, tokens=True)
    for tensor in named.values():
        if len(tensor.shape) >= 1:
            integers = not (tensor.is_floating_point() or tensor.is_complex())
            return _batch(tensor, tokens=integers and len(tensor.shape) == 2)
    return None


def _batch(tensor: Any, *, tokens: bool) -> Batch:
    shape = tuple(int(size) for size in tensor.shape)
    return Batch(
        shape=shape,
        samples=shape[0],
        tokens=shape[0] * shape[1] if tokens else None,
        sequence_length=shape[1] if tokens else None,
    )


def _named(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Tensors by name, in order; those inside one mapping or sequence count as the arguments themselves."""
    for index, value in enumerate(args):
        if isinstance(value, Mapping):
            yield from _named((), value)
        elif isinstance(value, (list, tuple)):
            yield from ((f"{index}.{at}", item) for at, item in enumerate(value) if _is_tensor(item))
        elif _is_tensor(value):
            yield str(index), value
    for name, value in kwargs.items():
        if _is_tensor(value):
            yield str(name), value
        elif isinstance(value, Mapping):
            yield from _named((), value)


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "is_floating_point")
