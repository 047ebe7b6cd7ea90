"""How large a batch is, by what a model is called with."""

from collections import UserDict
from dataclasses import dataclass

import pytest

from gpu_plan.executor.runner.figures.batches import batch_of


@dataclass(frozen=True)
class Tensor:
    """Shape and kind of a tensor: all that is looked at."""

    shape: tuple[int, ...]
    floating: bool = False

    def is_floating_point(self):
        return self.floating

    def is_complex(self):
        return False


IDS, IMAGE = Tensor((4, 16)), Tensor((8, 3, 32, 32), floating=True)


@pytest.mark.parametrize(
    ("args", "kwargs", "shape", "samples", "tokens"),
    [
        ((), {"attention_mask": Tensor((4, 1)), "input_ids": IDS}, (4, 16), 4, 64),
        ((UserDict(input_ids=IDS),), {}, (4, 16), 4, 64),
        ((), {"query": {"input_ids": IDS}, "passage": {"input_ids": Tensor((32, 16))}}, (4, 16), 4, 64),
        ((), {"inputs_embeds": Tensor((2, 16, 64), floating=True)}, (2, 16, 64), 2, 32),
        ((IMAGE, Tensor((8,))), {}, (8, 3, 32, 32), 8, None),
        (([IMAGE, IMAGE],), {}, (8, 3, 32, 32), 8, None),
        ((Tensor((5, 7)),), {}, (5, 7), 5, 35),
        ((Tensor((5, 7), floating=True),), {}, (5, 7), 5, None),
        ((Tensor(()), Tensor((3, 2), floating=True)), {}, (3, 2), 3, None),
    ],
)
def test_batches(args, kwargs, shape, samples, tokens):
    batch = batch_of(args, kwargs)
    assert (batch.shape, batch.samples, batch.tokens) == (shape, samples, tokens)
    assert batch.sequence_length == (shape[1] if tokens else None)


def test_no_tensor_is_no_batch():
    assert batch_of(("text", 3), {"labels": None}) is None
