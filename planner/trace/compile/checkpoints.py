"""Activation checkpointing inside a compiled region: nodes are tagged, and the partitioner recomputes them.

torch/_higher_order_ops/wrap.py: tag_activation_checkpoint_impl, which is what Dynamo makes of a call of
torch.utils.checkpoint.checkpoint: the same function with other arguments.
"""

import contextlib
import functools
import itertools
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch.utils.checkpoint as home
from torch.fx import traceback

_numbers = itertools.count()


def _recompute(ctx: Any, operator: Any, *args: Any, **kwargs: Any) -> home.CheckpointPolicy:
    return home.CheckpointPolicy.PREFER_RECOMPUTE


def _tagging(context_fn: Any) -> Any:
    """The contexts of one checkpointed call, whose nodes carry its number."""
    if context_fn is home.noop_context_fn:
        context_fn = functools.partial(home.create_selective_checkpoint_contexts, _recompute)
    number = next(_numbers)

    def contexts() -> Any:
        forward, again = context_fn()
        forward.ac_graph_id = number
        return forward, again

    return contexts


@contextlib.contextmanager
def tagged_checkpoints() -> Iterator[None]:
    """Within, what is checkpointed is tagged instead; entered while a graph is captured."""
    original = home._checkpoint_without_reentrant_generator

    def generator(
        fn: Any,
        preserve: Any,
        context_fn: Any,
        determinism: Any,
        debug: Any,
        early_stop: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        before = dict(traceback.current_meta)
        try:
            yield from original(fn, False, _tagging(context_fn), determinism, False, False, *args, **kwargs)
        finally:
            traceback.current_meta.clear()
            traceback.current_meta.update(before)

    with mock.patch.object(home, "_checkpoint_without_reentrant_generator", generator), traceback.preserve_node_meta():
        yield
