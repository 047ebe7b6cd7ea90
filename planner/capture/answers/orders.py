"""Which dimension of the inputs counts samples, where the model's own layers say: recurrent ones take time first."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

_SEQUENCES = (nn.RNNBase, nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)


class Order:
    """Looks at what the layers of a model are given in one forward pass.

    A layer of sequences with `batch_first=False` reads `[time, samples, width]` (torch/nn/modules/rnn.py,
    activation.py), a recurrent cell `[samples, width]` at each moment. Where the model itself is given
    `[time, samples]` as well, its second dimension counts samples. A packed sequence has lost its order: there the
    loader's count of samples decides.
    """

    def __init__(self) -> None:
        self.time_first = False

    @contextlib.contextmanager
    def watching(self, model: nn.Module, inputs: dict[str, torch.Tensor], batch_size: int | None) -> Iterator[None]:
        """Within, layers of `model` are looked at. A loader that counts its samples knows better than its layers."""
        first = next((tensor for tensor in inputs.values() if tensor.dim() > 1), None)
        if first is None or first.shape[0] == first.shape[1] or batch_size == first.shape[0]:
            yield
            return
        times, samples = int(first.shape[0]), int(first.shape[1])

        def look(layer: nn.Module, args: tuple[Any, ...]) -> None:
            given = args[0] if args and isinstance(args[0], (torch.Tensor, PackedSequence)) else None
            if given is None:
                return
            if isinstance(layer, nn.RNNCellBase):
                self.time_first |= given.dim() == 2 and given.shape[0] == samples
            elif isinstance(given, PackedSequence):
                self.time_first |= not layer.batch_first and batch_size == samples
            elif not getattr(layer, "batch_first", True):
                self.time_first |= given.dim() == 3 and tuple(given.shape[:2]) == (times, samples)

        kinds = (*_SEQUENCES, nn.RNNCellBase)
        handles = [one.register_forward_pre_hook(look) for one in model.modules() if isinstance(one, kinds)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
