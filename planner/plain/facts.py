"""Tables of facts that come with this program: TOML as it is written, or its twin in JSON, read in less time (I/O).

A twin stands for its table by the digest of the table's bytes: one that is not of these bytes is not read.
"""

import hashlib
import json
from pathlib import Path
from typing import Any


def facts(path: Path) -> dict[str, Any]:
    """The table in a TOML file."""
    content = path.read_bytes()
    twin = twin_of(path)
    if twin.is_file():
        digest, _, text = twin.read_bytes().partition(b"\n")
        if digest == _digest(content):
            read: dict[str, Any] = json.loads(text)
            return read
    import tomllib  # here, for its patterns take longer to compile than a twin to read

    return tomllib.loads(content.decode("utf-8"))


def twin_of(path: Path) -> Path:
    """Where the twin of a table stands, if it has one."""
    return path.with_suffix(".facts.json")


def write_twin(path: Path) -> bytes:
    """The twin of a table; TypeError for one that holds what JSON does not, such as a date."""
    import tomllib

    content = path.read_bytes()
    table = tomllib.loads(content.decode("utf-8"))
    return _digest(content) + b"\n" + json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest().encode()
