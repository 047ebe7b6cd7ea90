"""Which columns a script asks of a data set that nobody knows: read from its text. Pure."""

import ast
from collections.abc import Iterable, Mapping

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
_KINDS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("messages", "conversations", "conversation"), "chat"),
    (("label", "labels", "class", "target_class"), "label:2"),
    (("score", "rating", "reward"), "float"),
    (("target", "idx", "index", "num_turns"), "int"),
    (("nums", "numbers"), "ints:4"),
    (("id", "url", "category", "source", "lang", "language"), "text:1"),
    (("prompt", "question", "query", "instruction", "input", "title", "anchor"), "text:128"),
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
        for node in ast.walk(tree):
            name = _column(node)
            if name is not None and name not in _MADE:
                found.setdefault(name, kind_of(name))
    found.update({name: kind_of(name) for name in _in_words(list(words))})
    return found


def _column(node: ast.AST) -> str | None:
    """The constant in `example["column"]`, or in an option whose name says that it names a column."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in _SUBSCRIPTED:
        return _word(node.slice)
    if isinstance(node, ast.keyword) and node.arg in ("dataset_text_field", "text_column"):
        return _word(node.value)
    return None


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
