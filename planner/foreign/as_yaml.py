"""YAML of others as values: no tags that build objects, no anchors that unfold into more than was written. Pure."""

from typing import Any

from gpu_plan.planner.foreign.limits import MAX_DEPTH, MAX_DIGITS, MalformedError, decoded, too_deep

MAX_BYTES = 2**18
"""A configuration has a few KB; PyYAML reads some 60 KB a second."""
MAX_NODES = 100_000
"""With every alias unfolded, as whoever walks the values meets them."""
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


def yaml_value(text: bytes | str) -> object:
    """The first document's value, as `yaml.safe_load` builds it. MalformedError for all that is no bounded YAML."""
    import yaml

    if len(text) > MAX_BYTES:
        raise MalformedError(f"is larger than {MAX_BYTES // 1024} KiB: no configuration is")
    try:
        loader = yaml.SafeLoader(decoded(text))
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _check(node)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except RecursionError:
        raise too_deep(MAX_DEPTH) from None
    except MalformedError:
        raise
    except (yaml.YAMLError, ValueError, TypeError, KeyError, OverflowError, AttributeError) as error:
        # Constructors of single values (dates, base 60, binary) raise as Python does.
        raise MalformedError(f"is not valid YAML: {' '.join(str(error).split())[:160]}") from None


def _check(root: Any) -> None:
    """Bounds on what is not built yet: merging keys (`<<`) copies what an alias names, as often as it is named."""
    sizes: dict[int, int] = {}
    open_: set[int] = set()
    stack: list[tuple[Any, bool]] = [(root, False)]
    while stack:
        node, done = stack.pop()
        key = id(node)
        if done:
            sizes[key] = 1 + sum(sizes[id(child)] for child in _children(node))
            open_.discard(key)
            if sizes[key] > MAX_NODES:
                raise MalformedError(f"unfolds into more than {MAX_NODES:,} values: write out what its aliases name")
        elif key in open_:
            raise MalformedError("holds a value that is part of itself")
        elif key not in sizes:
            children = _children(node)
            if not children and node.tag in _NUMBERS and len(str(node.value)) > MAX_DIGITS:
                raise MalformedError(f"holds a number of {len(str(node.value))} characters")
            open_.add(key)
            if len(open_) > MAX_DEPTH:
                raise too_deep(MAX_DEPTH)
            stack.append((node, True))
            stack += [(child, False) for child in children]


def _children(node: Any) -> list[Any]:
    if isinstance(node.value, str):
        return []
    return [part for entry in node.value for part in (entry if isinstance(entry, tuple) else (entry,))]
