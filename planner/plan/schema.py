"""JSON Schema of the documents that this program writes, read off the dataclasses that they are made of.

What `codec.decode` reads is what the schema says: the same types, the same required keys, unknown keys allowed.
"""

import ast
import inspect
import itertools
import textwrap
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SCALARS: Mapping[Any, str] = {int: "integer", float: "number", str: "string", bool: "boolean"}


def json_schema(kind: type, title: str) -> dict[str, Any]:
    """The schema of the document that `kind`, a dataclass, is written as. TypeError for a type that JSON has not."""
    parts: dict[str, Any] = {}
    _object(kind, parts)
    return {
        "$schema": DIALECT,
        "title": title,
        "$ref": f"#/$defs/{kind.__name__}",
        "$defs": dict(sorted(parts.items())),
    }


def _object(kind: Any, parts: dict[str, Any]) -> dict[str, Any]:
    """A reference to the definition of a dataclass, which is added to `parts`."""
    reference = {"$ref": f"#/$defs/{kind.__name__}"}
    if kind.__name__ in parts:
        return reference
    parts[kind.__name__] = {}  # a type that holds itself refers to this entry
    hints, said = get_type_hints(kind), _field_docs(kind)
    properties = {}
    for entry in fields(kind):
        text = {"description": said[entry.name]} if entry.name in said else {}
        properties[entry.name] = _schema(hints[entry.name], parts) | text
    needed = [entry.name for entry in fields(kind) if _is_required(entry)]
    parts[kind.__name__] = {
        "type": "object",
        "description": _first_paragraph(inspect.getdoc(kind) or ""),
        "properties": properties,
        **({"required": needed} if needed else {}),
    }
    return reference


def _is_required(entry: Any) -> bool:
    return entry.init and entry.default is MISSING and entry.default_factory is MISSING


def _schema(hint: Any, parts: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    if hint is object or hint is Any:
        return {}
    if origin in (Union, types.UnionType):
        choices = [{"type": "null"} if one is type(None) else _schema(one, parts) for one in arguments]
        return {"anyOf": choices}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple:
        return {"type": "array", "items": _schema(arguments[0], parts)}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _schema(arguments[1], parts)}
    if is_dataclass(hint):
        return _object(hint, parts)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return {"enum": [str(one.value) for one in hint]}
    raise TypeError(f"{hint!r} has no schema")


def _field_docs(kind: Any) -> dict[str, str]:
    """The texts that stand below the fields of a dataclass."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    body = getattr(tree.body[0], "body", [])
    found = {}
    for before, after in itertools.pairwise(body):
        is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and is_text:
            found[before.target.id] = " ".join(str(after.value.value).split())
    return found


def _first_paragraph(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split())
