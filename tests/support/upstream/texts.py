"""Docstrings, comments and constants of a Python file, each as one text without line breaks."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator


def texts(source: str) -> Iterator[str]:
    """Every string constant and every run of comment lines of `source`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield _joined(node.value)
    yield from _comments(source)


def _comments(source: str) -> Iterator[str]:
    run: list[str] = []
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if run and token.start[0] != last + 1:
            yield _joined(" ".join(run))
            run = []
        run.append(token.string.lstrip("# "))
        last = token.start[0]
    if run:
        yield _joined(" ".join(run))


def _joined(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
