"""What every workload says of itself, whatever its task."""

from dataclasses import replace
from typing import Literal, Self

Basis = Literal["given", "default", "searched", "captured"]
"""Where a value of a workload came from."""


class Settled:
    """Settings, and where values came from; a workload is a frozen dataclass with these two fields."""

    __slots__ = ()

    settings: tuple[tuple[str, str], ...]
    """`--set KEY=VALUE` pairs, sorted by key."""
    basis: tuple[tuple[str, Basis], ...]

    def with_basis(self, **basis: Basis) -> Self:
        """The same job with the origin of some of its values noted."""
        return replace(self, basis=tuple(sorted({**dict(self.basis), **basis}.items())))  # type: ignore[type-var]

    def setting(self, key: str, default: str) -> str:
        """Value of a `--set` key, or `default`."""
        return dict(self.settings).get(key, default)

    @property
    def reserve_bytes(self) -> int:
        """Bytes of each device that `--set memory.reserve` keeps free for others."""
        return int(self.setting("memory.reserve", "0"))
