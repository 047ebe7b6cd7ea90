"""One table of a job document: keys that are known, values of the right kind, one line for all others."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypeVar

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.planner.visible import visible

E = TypeVar("E", bound=StrEnum)
_MOST_WORDS = 200
_MOST = 2**26


class Part:
    """A table of the document with the words that say where it stands."""

    def __init__(self, table: object, where: str, known: Iterable[str]) -> None:
        if not isinstance(table, Mapping):
            raise InputError(f"{where} is no table: write its keys below [{where.rpartition(': ')[2]}]")
        self.where = where
        self._table: Mapping[str, object] = table
        names = tuple(known)
        for key in table:
            if key not in names:
                raise InputError(
                    f"{where}: {shown(key)} is no key of it: {', '.join(names)}.{did_you_mean(key, names)}"
                )

    def __contains__(self, key: str) -> bool:
        return key in self._table

    def text(self, key: str) -> str | None:
        """Printable words; None where the key is absent."""
        value = self._table.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip() or not value.isprintable() or len(value) > _MOST_WORDS:
            raise InputError(f"{self.where}: {key} = {shown(value)}: write a few words in quotes")
        return value

    def count(self, key: str) -> int | None:
        """A whole number from 1 on."""
        value = self._table.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MOST:
            raise InputError(f"{self.where}: {key} = {shown(value)}: write a whole number from 1 on")
        return value

    def share(self, key: str, usual: float) -> float:
        """A share above 0 and at most 1."""
        value = self._table.get(key, usual)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
            raise InputError(f"{self.where}: {key} = {shown(value)}: write a share above 0 and at most 1, such as 0.3")
        return float(value)

    def text_of(self, key: str) -> str | None:
        """A value where it is text; None for anything else."""
        value = self._table.get(key)
        return value if isinstance(value, str) else None

    def flag(self, key: str) -> bool:
        """False where the key is absent."""
        value = self._table.get(key, False)
        if not isinstance(value, bool):
            raise InputError(f"{self.where}: {key} = {shown(value)}: write true or false")
        return value

    def names(self, key: str) -> tuple[str, ...]:
        """Words in a list."""
        value = self._table.get(key)
        words = isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)
        if not isinstance(value, list) or not words:
            raise InputError(f'{self.where}: {key} = {shown(value)}: write names in a list, such as ["policy"]')
        return tuple(str(one) for one in value)

    def one_of(self, key: str, kind: type[E], usual: E | None = None) -> E:
        """A value of an enumeration."""
        word = self.text(key)
        if word is None and usual is not None:
            return usual
        names = [str(one) for one in kind]
        if word is None:
            raise InputError(f"{self.where} says no {key}: add one of {', '.join(names)}")
        if word.lower() not in names:
            raise InputError(
                f"{self.where}: {key} = {shown(word)} is unknown: use {', '.join(names)}.{did_you_mean(word, names)}"
            )
        return kind(word.lower())


def shown(value: object) -> str:
    """A value as a message quotes it."""
    return visible(repr(value) if not isinstance(value, str) else f"'{value}'")[:60]
