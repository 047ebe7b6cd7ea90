"""What a tool was told, key by key, with its own defaults beneath; which of it was read."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.visible import visible


class Asked:
    """Dotted keys and their values. Every read says the kind; InputError in one line for a value of another."""

    def __init__(
        self,
        where: str,
        said: Mapping[str, object],
        usual: Mapping[str, object],
        spelt: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.where = where
        self._said, self._usual, self._spelt = said, usual, spelt
        self._read: set[str] = set()
        self.aside: list[str] = []
        """What is to be said of the whole job."""
        self.older: str | None = None
        """What is to be said of a word of an older release; None where none was read."""

    def spelt(self, key: str) -> str:
        """A key as the file spells it, where a fork or an older release has another word for it."""
        return self._spelt.get(key, key)

    def says(self, key: str) -> bool:
        """Whether the file itself says it."""
        return key in self._said

    def knows(self, key: str) -> bool:
        """Whether the file, or what stands beneath it, has the key."""
        return key in self._said or key in self._usual

    def told(self) -> Iterable[str]:
        """Keys that the file itself says."""
        return self._said

    def value(self, key: str) -> object:
        """As it was told, else the tool's own."""
        self._read.add(key)
        return self._said.get(key, self._usual.get(key))

    def text(self, key: str) -> str | None:
        """Words; None where nobody says any."""
        found = self.value(key)
        if found is None or found in ("null", "None", ""):
            return None
        if isinstance(found, Mapping | list):
            raise self._no(key, found, "words")
        return self._whole(key, str(found))

    def model(self, key: str) -> str | None:
        """A model's name; InputError says how to give one that the file takes from elsewhere."""
        found = self.value(key)
        if isinstance(found, str) and "$" in found:
            raise InputError(
                f"{self.where}: {self.spelt(key)} is {visible(found[:60])}, which the file does not set: name the model"
                f" behind it (plan from-config {self.where} MODEL)"
            )
        return self.text(key)

    def flag(self, key: str) -> bool:
        """Whether it is switched on."""
        found = self.value(key)
        if found in (None, False, True):
            return bool(found)
        word = self._whole(key, str(found)).lower()
        if word not in ("true", "false", "null", "none", "1", "0", "yes", "no", "on", "off"):
            raise self._no(key, found, "true or false")
        return word in ("true", "1", "yes", "on")

    def count(self, key: str) -> int | None:
        """A whole number from 0 on; None where nobody says one."""
        found = self.number(key)
        if found is None:
            return None
        if found != int(found) or found < 0 or found > 2**40:
            raise self._no(key, self.value(key), "a whole number")
        return int(found)

    def number(self, key: str) -> float | None:
        """A finite number."""
        word = self.text(key)
        if word is None:
            return None
        try:
            found = float(word) if len(word) < 40 else float("nan")
        except ValueError:
            found = float("nan")
        if not abs(found) < 2.0**60:
            raise self._no(key, word, "a number")
        return found

    def refuse(self, key: str, usual: tuple[object, ...], why: str) -> None:
        """InputError for a key whose value is none of the usual ones."""
        found = self.value(key)
        if found not in usual and str(found) not in [str(one) for one in usual]:
            raise InputError(f"{self.where}: {self.spelt(key)} is {visible(str(found)[:60])}: {why}")

    def left(self, passed: tuple[str, ...]) -> list[str]:
        """Keys that the file says and nobody read, without those that begin so."""
        return [self.spelt(key) for key in self._said if key not in self._read and not key.startswith(passed)]

    def _whole(self, key: str, word: str) -> str:
        if "$" in word:
            raise InputError(
                f"{self.where}: {self.spelt(key)} is {visible(word[:60])}, which the file does not set: write its value"
                " there"
            )
        return word

    def _no(self, key: str, value: object, kind: str) -> InputError:
        return InputError(f"{self.where}: {self.spelt(key)} is {visible(str(value)[:60])}: {kind} is needed there")
