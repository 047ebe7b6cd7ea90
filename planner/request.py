"""What the main job is asked for."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for."""

    model: str
    gpus: str
    words: tuple[tuple[str, str], ...]
    """Job options given, by name without dashes."""
    settings: tuple[str, ...]
    pinned: bool
    explain: bool
    trust_remote_code: bool
    revision: str | None
    use_cache: bool
    command: str


Note = Callable[[str], None]
