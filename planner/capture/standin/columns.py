"""Which columns a script asks of a data set that nobody knows: read from its text. Pure."""

import ast
from collections.abc import Collection, Iterable, Mapping

_SUBSCRIPTED = {
    "example", "examples", "element", "row", "rows", "sample", "samples", "batch", "item", "x", "ex", "data_point",
    "record", "rec", "e", "r", "prompt", "feature", "features", "d", "entry", "inputs", "data",
}  # fmt: skip
"""What the functions that are mapped over a data set call one row, or a batch of them."""
_MADE = {
    "input_ids", "attention_mask", "labels", "token_type_ids", "pixel_values", "train", "test", "validation", "length",
    "overflow_to_sample_mapping", "position_ids",
}  # fmt: skip
"""What a script makes itself."""
_LOADING = ("load_dataset", "load_from_disk")
_NAMING = frozenset({"remove_columns", "rename_column", "select_columns"})
"""Methods of a data set whose first argument names columns that it has."""
_KINDS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("messages", "conversations", "conversation"), "chat"),
    (("positive", "negative", "passage", "sentence", "sentence1", "sentence2", "premise"), "text:128"),
    (("label", "labels", "class", "target_class"), "label:2"),
    (("image", "images", "picture", "pixels", "conditioning_image", "img"), "image:64"),
    (("score", "rating", "reward"), "float"),
    (("target", "idx", "index", "num_turns"), "int"),
    (("nums", "numbers"), "ints:4"),
    (("id", "url", "category", "source", "lang", "language"), "text:1"),
    (("prompt", "question", "query", "instruction", "input", "title", "anchor", "hypothesis"), "text:128"),
)
_OTHERWISE = "text:1024"


def kind_of(column: str) -> str:
    """The kind that a column of this name most likely has."""
    lowered = column.lower()
    for names, kind in _KINDS:
        if lowered in names:
            return kind
    if lowered.startswith("score") or lowered.endswith("_score"):
        return "float"
    return "text:1" if lowered.endswith("_id") else _OTHERWISE


def columns_in(sources: Iterable[str], words: Iterable[str] = ()) -> Mapping[str, str]:
    """Columns that the sources' rows are asked for, with their kinds; values of `--..._field` and `--..._column` too.

    Empty where none is named.
    """
    found: dict[str, str] = {}
    for source in sources:
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            continue
        sets = _SUBSCRIPTED | _loaded(tree)
        for node in ast.walk(tree):
            for name in _columns(node, sets):
                if name not in _MADE:
                    found.setdefault(name, kind_of(name))
    found.update({name: kind_of(name) for name in _in_words(list(words))})
    return found


def _loaded(tree: ast.AST) -> set[str]:
    """Names that are given what `load_dataset` or `load_from_disk` loads, or what is made of such a name."""
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    found: set[str] = set()
    for _ in range(3):  # one is made of another, rarely of a third
        for node in assigned:
            if _of_a_set(node.value, found):
                found |= {name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return found


def _of_a_set(node: ast.expr, names: set[str]) -> bool:
    """Whether a chain of calls, attributes and parts begins with a loaded set."""
    while True:
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name | ast.Attribute) and _last(node.func) in _LOADING:
                return True
            node = node.func
        elif isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        else:
            return isinstance(node, ast.Name) and node.id in names


def _last(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _columns(node: ast.AST, sets: Collection[str]) -> list[str]:
    """Constants in `example["column"]` and `loaded["column"]`, in what names columns to a set or in an option."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in sets:
        return [*filter(None, [_word(node.slice)])]
    if isinstance(node, ast.keyword) and node.arg in ("dataset_text_field", "text_column"):
        return [*filter(None, [_word(node.value)])]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _NAMING and node.args:
        first = node.args[0]
        given = first.elts if isinstance(first, ast.List | ast.Tuple) else [first]
        return [*filter(None, map(_word, given))]
    return []


def _word(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value else None


def _in_words(words: list[str]) -> list[str]:
    """`--dataset_text_field content` and `--text_column=body` name columns."""
    found = []
    for position, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option.startswith("--") and option.removesuffix("_name").endswith(
            ("_field", "_column", "-field", "-column")
        ):
            value = value if equals else (words[position + 1] if position + 1 < len(words) else "")
            if value and not value.startswith("-"):
                found.append(value)
    return found
