"""transformers' list of what its models' files export, which it makes when it is imported, made once and faster.

transformers utils/import_utils.py: create_import_structure_from_path reads some two thousand files, and keeps the
answers of a hundred folders of a thousand, so that the second of two askers reads all of them again.
"""

import functools
import sys
from collections.abc import Callable

_MODULE = "transformers.utils.import_utils"
_SEPARATORS = ("\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")
"""What str.splitlines ends lines at beside newlines."""


class FoldersRead:
    """Has every folder's answer kept while transformers is imported."""

    def __init__(self) -> None:
        self._put_back: Callable[[], None] | None = None

    def begin(self) -> None:
        """Once transformers' module that reads them is there; asked after every import."""
        module = sys.modules.get(_MODULE)
        if self._put_back is not None or module is None or getattr(module.__spec__, "_initializing", False):
            return
        folders = getattr(module, "create_import_structure_from_path", None)
        names = getattr(module, "fetch__all__", None)
        if folders is None or names is None or not hasattr(folders, "__wrapped__"):
            self._put_back = _nothing  # another version, which does this otherwise
            return

        def put_back() -> None:
            module.create_import_structure_from_path, module.fetch__all__ = folders, names  # type: ignore[attr-defined]

        module.create_import_structure_from_path = functools.cache(folders.__wrapped__)  # type: ignore[attr-defined]
        module.fetch__all__ = exported(names)  # type: ignore[attr-defined]
        self._put_back = put_back

    def end(self) -> None:
        if self._put_back is not None:
            self._put_back()


def _nothing() -> None:
    pass


def exported(original: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """`original(content)`, given no more than what begins at the last line that begins with `__all__`."""

    def names(content: str) -> list[str]:
        if any(separator in content for separator in _SEPARATORS):
            return original(content)
        at = content.rfind("\n__all__")
        if at >= 0:
            return original(content[at + 1 :])
        return original(content) if content.startswith("__all__") else []

    return names
