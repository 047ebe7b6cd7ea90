"""Bytes of the hub, no more than were asked for and no longer than is waited for.   I/O

What a server says of its lengths is not believed: bytes are counted as they come, as sent (a compressed answer may
unfold into any number of them), and the time is looked at with every piece.
"""

import threading
import time
from dataclasses import field
from typing import Any

from gpu_plan.planner.errors import InputError, UnreachableError
from gpu_plan.planner.plain.values import dataclass

PIECE_SECONDS = 6.0
"""For the first answer, and between two pieces of it."""


class AbsentError(Exception):
    """The repository has no such file."""


@dataclass(slots=True)
class Allowance:
    """What one conversation may take, all its requests and threads together."""

    bytes: int
    seconds: float
    _taken: int = 0
    _until: float = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._until = time.monotonic() + self.seconds

    def take(self, count: int, name: str) -> None:
        """InputError where `count` more bytes are too many, UnreachableError where it has taken too long."""
        with self._lock:
            self._taken += count
            if self._taken > self.bytes:
                raise InputError(f"the hub gives more than {self.bytes:,} bytes for {name}: it is not such a file")
        if time.monotonic() > self._until:
            raise UnreachableError(f"the hub did not give {name} within {self.seconds:.0f} seconds")


def get(url: str, name: str, allowance: Allowance, *, offset: int = 0, length: int | None = None) -> bytes:
    """`length` bytes from `offset`, or the whole file; a server that ignores ranges is cut off.

    AbsentError where it is not there, InputError for more bytes than are allowed or for an answer in another form.
    """
    from huggingface_hub import get_session, get_token
    from huggingface_hub.utils import build_hf_headers

    headers: dict[str, Any] = dict(build_hf_headers(token=get_token()))
    headers["Accept-Encoding"] = "identity"
    if length is not None:
        headers["Range"] = f"bytes={offset}-{offset + length - 1}"
    session = get_session()
    with session.stream("GET", url, headers=headers, timeout=PIECE_SECONDS, follow_redirects=True) as answer:
        _check(answer, name)
        skip = offset if answer.status_code == 200 else 0
        most = None if length is None else skip + length
        kept = bytearray()
        for piece in answer.iter_raw():
            allowance.take(len(piece), name)
            kept += piece
            if most is not None and len(kept) >= most:
                break
    return bytes(kept[skip:most])


def _check(answer: Any, name: str) -> None:
    if answer.status_code == 404:
        raise AbsentError(name)
    if answer.status_code not in (200, 206):
        raise InputError(f"the hub answered {answer.status_code} for {name}")
    if answer.headers.get("Content-Encoding", "identity") != "identity":
        raise InputError(f"the hub sends {name} compressed, though it was asked not to")
