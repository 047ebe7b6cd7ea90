"""The prompts of a run: a text file with one in each line, or JSON Lines (I/O)."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu_plan.planner.errors import InputError, UnreachableError
from gpu_plan.planner.foreign.as_json import json_value
from gpu_plan.planner.foreign.files import read_bytes
from gpu_plan.planner.foreign.limits import MalformedError

MAX_LINE = 64 * 2**20
"""Bytes of one line."""
MAX_FILE = 4 * 2**30
"""Bytes of all of them."""
_FIELDS = ("prompt", "input_ids", "messages")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One line of the file: a text, a conversation, or tokens."""

    index: int
    """From 0, in the file's order."""
    line: int
    text: str | None = None
    messages: tuple[dict[str, str], ...] | None = None
    input_ids: tuple[int, ...] | None = None
    id: str | int | None = None
    """The user's own name for it; handed through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """All prompts of a file."""

    path: Path
    items: tuple[Prompt, ...]
    digest: str
    """sha256 of the file."""

    @property
    def need_tokenizer(self) -> bool:
        return any(item.input_ids is None for item in self.items)

    def where(self, prompt: Prompt) -> str:
        """`prompts.jsonl line 7`, for messages."""
        return f"{self.path.name} line {prompt.line}"


def read_prompts(path: Path) -> Prompts:
    """Every prompt of `path`; .jsonl and .json lines are objects, any other file's lines are prompts as they stand.

    UnreachableError where it cannot be read, InputError with the line for what makes no sense.
    """
    try:
        content = read_bytes(path, MAX_FILE + 1)
    except FileNotFoundError:
        raise UnreachableError(f"there is no {path}: name a file of prompts with --prompts") from None
    except OSError as error:
        raise UnreachableError(f"{path} cannot be read: {error.strerror or error}") from None
    structured = path.suffix in (".jsonl", ".json", ".ndjson")
    items = tuple(_items(path, content, structured))
    if not items:
        raise InputError(f"{path} has no prompt in it")
    return Prompts(path=path, items=items, digest=hashlib.sha256(content).hexdigest())


def _items(path: Path, content: bytes, structured: bool) -> Iterator[Prompt]:
    lines = content.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    index = 0
    for number, raw in enumerate(lines, 1):
        where = f"{path.name} line {number}"
        if len(raw) > MAX_LINE:
            raise InputError(f"{where} is {len(raw):,} bytes long: one prompt may have {MAX_LINE:,}")
        try:
            text = raw.removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError:
            raise InputError(f"{where} is not UTF-8 text") from None
        if structured and not text.strip():
            continue
        if not text:
            raise InputError(f"{where} is empty: each line is a prompt")
        yield _object(text, index, number, where) if structured else Prompt(index=index, line=number, text=text)
        index += 1


def _object(text: str, index: int, number: int, where: str) -> Prompt:
    try:
        value = json_value(text)
    except MalformedError as error:
        raise InputError(f"{where} {error}") from None
    if not isinstance(value, dict):
        raise InputError(f'{where} is not an object: write {{"prompt": "..."}} or {{"input_ids": [...]}}')
    given = [name for name in _FIELDS if value.get(name) is not None]
    if len(given) != 1:
        said = f"has {' and '.join(given)}" if given else "has no prompt"
        raise InputError(f"{where} {said}: give one of {', '.join(_FIELDS)}")
    name = value.get("id")
    if name is not None and (isinstance(name, bool) or not isinstance(name, (str, int))):
        raise InputError(f"{where}: id is neither a text nor a whole number")
    return Prompt(
        index=index,
        line=number,
        id=name,
        text=_text(value["prompt"], where) if given[0] == "prompt" else None,
        input_ids=_ids(value["input_ids"], where) if given[0] == "input_ids" else None,
        messages=_messages(value["messages"], where) if given[0] == "messages" else None,
    )


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise InputError(f"{where}: prompt is not text, or an empty one")
    return value


def _ids(value: object, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        raise InputError(f"{where}: input_ids is not a list of token numbers, or an empty one")
    for token in value:
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < 2**31:
            raise InputError(f"{where}: input_ids holds {str(token)[:40]!r}, which is not a token number")
    return tuple(value)


def _messages(value: object, where: str) -> tuple[dict[str, str], ...]:
    fine = isinstance(value, list) and value and all(_is_message(message) for message in value)
    if not fine or not isinstance(value, list):
        raise InputError(f'{where}: messages is not a list of {{"role": ..., "content": ...}}')
    return tuple(value)


def _is_message(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(name), str) for name in ("role", "content"))


def check_tokens(prompts: Prompts, lengths: Sequence[int], limit: int, new_tokens: int, why: str) -> None:
    """InputError for the first prompt whose tokens and the new ones go beyond `limit`; `why` names the limit."""
    for prompt, length in zip(prompts.items, lengths, strict=True):
        if length + new_tokens > limit:
            raise InputError(
                f"{prompts.where(prompt)}: {length:,} tokens and {new_tokens:,} new ones go beyond {why} of {limit:,}"
            )
