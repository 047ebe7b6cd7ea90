"""Repeated layers of a model, found by structure: what folding traces once per kind and tiles.

Two layers are the same kind when class, parameters, buffers and every scalar attribute that can change
behaviour agree, all the way down. Their position is left out: `layer_idx` and the like only name a cache
slot, unless a class turns it into behaviour, and then the outcome (a layer type, a window, an expert block)
is an attribute of its own.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

MIN_LAYERS = 4

_POSITIONAL = frozenset({"layer_idx", "layer_id", "layer_index", "layer_number", "block_idx", "idx", "index"})
_POSITION_LISTS = ("_indexes", "_indices", "_index")
_PLUMBING = frozenset({"training", "call_super_init", "dump_patches", "T_destination"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRun:
    """One `nn.ModuleList` (or `nn.Sequential`) of repeated layers."""

    module: nn.Module
    name: str
    """Qualified name of the list, e.g. `model.layers`."""
    signatures: tuple[str, ...]
    """Per layer, a digest of its kind; equal digests mean interchangeable layers."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Distinct signatures in order of first appearance."""
        return tuple(dict.fromkeys(self.signatures))

    def runs(self) -> tuple[tuple[str, int], ...]:
        """Run-length encoding of the signatures: (signature, count)."""
        lengths: list[tuple[str, int]] = []
        for signature in self.signatures:
            if lengths and lengths[-1][0] == signature:
                lengths[-1] = (signature, lengths[-1][1] + 1)
            else:
                lengths.append((signature, 1))
        return tuple(lengths)


def repeated_blocks(model: nn.Module, *, min_layers: int = MIN_LAYERS) -> list[BlockRun]:
    """Outermost lists with at least `min_layers` layers of which some kind repeats, in module order.

    Lists inside a found list (experts, projections of one layer) are not looked at.
    """
    return list(_search(model, model, None, "", min_layers))


def _search(
    root: nn.Module, module: nn.Module, owner: nn.Module | None, name: str, min_layers: int
) -> Iterator[BlockRun]:
    # A list may hold places without a module: x-transformers' layers without a norm of their own.
    whole = isinstance(module, nn.ModuleList | nn.Sequential) and all(child is not None for child in module)
    if isinstance(module, nn.ModuleList | nn.Sequential) and whole and len(module) >= min_layers:
        marks = parent_marks(root, owner, name, len(module))
        signatures = tuple(signature_of(child) + marks.get(index, "") for index, child in enumerate(module))
        if len(set(signatures)) < len(signatures) and all(any(True for _ in c.parameters()) for c in module):
            yield BlockRun(module=module, name=name, signatures=signatures)
            return
    for child_name, child in module.named_children():
        yield from _search(root, child, module, f"{name}.{child_name}" if name else child_name, min_layers)


def parent_marks(root: nn.Module, owner: nn.Module | None, name: str, count: int) -> dict[int, str]:
    """Layer position to a suffix, for layers that their parent treats apart although they look like the
    others.

    Read from lists of positions that the owner or its config keeps (Qwen2.5-VL's `fullatt_block_indexes`,
    Qwen3-VL's `deepstack_visual_indexes`, Mllama's `intermediate_layers_indices`); from
    `vision_feature_layer`, after which LLaVA's tower gets no gradient; and from the deep stack's additions to
    the first text layers.
    """
    marks: dict[int, str] = {}
    for holder in (owner, getattr(owner, "config", None)):
        for key, value in sorted(vars(holder).items()) if holder is not None else ():
            # `out_indices` count a backbone's stages, and a classifier does not use them.
            if key.endswith(_POSITION_LISTS) and "out_" not in key and _is_positions(value):
                marks |= {index % count: f"+{key}" for index in value if -count <= index < count}
    config = getattr(root, "config", None)
    vision = getattr(config, "vision_config", None)
    taken = getattr(config, "vision_feature_layer", None)
    if "vision" in name and taken is not None:
        last = max(_hidden_state(index, count) for index in (taken if isinstance(taken, list) else [taken]))
        marks |= {index: "+unused" for index in range(last, count)}
    if "language_model" in name:
        deep = getattr(vision, "deepstack_visual_indexes", None) or ()
        marks |= {index: "+deepstack" for index in range(min(len(deep), count))}
    return marks


def _is_positions(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(type(item) is int for item in value)


def _hidden_state(index: int, count: int) -> int:
    """Number of layers behind entry `index` of a stack's count + 1 hidden states."""
    return index % (count + 1)


def signature_of(module: nn.Module) -> str:
    """Digest (16 hex digits) of a module's structure, without its position among its siblings."""
    digest = hashlib.blake2b(digest_size=8)
    for part in _describe(module, ""):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def _describe(module: nn.Module, path: str) -> Iterator[str]:
    yield f"{path}:{type(module).__module__}.{type(module).__qualname__}"
    for name, parameter in module._parameters.items():
        if parameter is not None:
            yield f"p {name} {tuple(parameter.shape)} {parameter.dtype} {parameter.requires_grad}"
    for name, buffer in module._buffers.items():
        if buffer is not None:
            yield f"b {name} {tuple(buffer.shape)} {buffer.dtype}"
    for name, value in sorted(module.__dict__.items()):
        if not name.startswith("_") and name not in _POSITIONAL and name not in _PLUMBING:
            if isinstance(value, float) and ("drop" in name or name == "p"):
                value = value > 0.0  # rates that grow with depth run the same operators, unless zero
            shown = _scalar(value)
            if shown is not None:
                yield f"a {name} {shown}"
    for name, child in module.named_children():
        yield from _describe(child, f"{path}.{name}")


def _scalar(value: Any) -> str | None:
    """Text of a value that can steer a forward pass; None for objects. Functions go by their name."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, tuple | list) and len(value) <= 64:
        parts = [_scalar(item) for item in value]
        return None if any(part is None for part in parts) else repr(parts)
    if callable(value) and hasattr(value, "__qualname__") and not isinstance(value, nn.Module):
        return str(value.__qualname__)
    return None
