"""A table of a configuration file, of which what has been read is known, and what has not."""

from collections.abc import Iterator, Mapping

from gpu_plan.planner.errors import InputError

AUTO = "auto"
"""A value that the tool fills in by itself: read as one that is not given."""
_LARGEST = 2**31
MOST = 2**53
"""Largest whole number that every tool's reader tells from its neighbours."""


class Table:
    """Typed reading of one mapping; every error is an InputError that names file and key."""

    def __init__(self, content: Mapping[str, object], where: str, prefix: str = "") -> None:
        self.where = where
        self.prefix = prefix
        self._content = content
        self._read: set[str] = set()
        self._tables: dict[str, Table] = {}

    def name(self, key: str) -> str:
        """The key as a user finds it: `fsdp_config.fsdp_version`."""
        return f"{self.prefix}{key}"

    def wrong(self, key: str, wanted: str) -> InputError:
        """What to raise for a value that is not `wanted`."""
        return InputError(f"{self.where}: {self.name(key)} is {str(self._content.get(key))[:40]!r}: use {wanted}")

    def has(self, key: str) -> bool:
        """Whether the key is there with a value; an empty one says nothing."""
        return self._content.get(key) not in (None, "")

    def listed(self) -> tuple[str, ...]:
        """All keys, in the file's order."""
        return tuple(self._content)

    def stands(self, key: str) -> bool:
        """Whether the key is there, with a value or without."""
        return key in self._content

    def raw(self, key: str) -> object:
        """The value as it stands, None where there is none; the key counts as read."""
        self._read.add(key)
        value = self._content.get(key)
        return None if value == "" else value

    def peek(self, key: str) -> object:
        """The value as it stands; the key does not count as read."""
        return self._content.get(key)

    def word(self, key: str) -> str | None:
        """A string, or None. `auto` is a string like any other here."""
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, (str, int, float)) or isinstance(value, bool):
            raise self.wrong(key, "a word")
        return str(value)

    def flag(self, key: str) -> bool | None:
        """true or false, also as words; None for `auto` and where there is none."""
        value = self.raw(key)
        if value is None or value == AUTO:
            return None
        if isinstance(value, bool):
            return value
        text = str(value).lower()
        if text in ("true", "yes", "on", "1"):
            return True
        if text in ("false", "no", "off", "0"):
            return False
        raise self.wrong(key, "true or false")

    def count(self, key: str, least: int = 1, most: int = _LARGEST) -> int | None:
        """A whole number from `least` on, below `most`, also as a word; None for `auto` and where there is none."""
        value = self.raw(key)
        if value is None or value == AUTO:
            return None
        number = _whole(value)
        if number is None or not least <= number < most:
            raise self.wrong(key, f"a whole number of {least} or more")
        return number

    def rate(self, key: str) -> float | None:
        """A number from 0 on, also as a word; None for `auto` and where there is none."""
        value = self.raw(key)
        if value is None or value == AUTO:
            return None
        try:
            number = -1.0 if isinstance(value, bool) else float(str(value))
        except (ValueError, OverflowError):
            number = -1.0
        if not 0 <= number < _LARGEST:
            raise self.wrong(key, "a number of 0 or more")
        return number

    def names(self, key: str) -> tuple[str, ...]:
        """Words of a list, or of a string with commas."""
        value = self.raw(key)
        if value is None:
            return ()
        listed = value if isinstance(value, list) else str(value).split(",")
        if not all(isinstance(item, str) for item in listed):
            raise self.wrong(key, "a list of names")
        return tuple(item.strip() for item in listed if item.strip())

    def table(self, key: str) -> "Table | None":
        """A table within this one, or None; what is not read of it is told with this one's."""
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.wrong(key, "a table")
        return self._tables.setdefault(key, Table(value, self.where, f"{self.name(key)}."))

    def left(self) -> Iterator[tuple[str, bool]]:
        """Names of the keys that nothing has read, in the file's order, and whether a value stands there."""
        for key in self._content:
            if key in self._tables:
                yield from self._tables[key].left()
            elif key not in self._read:
                yield self.name(str(key)), self._content[key] not in (None, "", [], {})


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return int(number) if number == number and abs(number) < 2**53 and number == int(number) else None
