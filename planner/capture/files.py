"""The text files of a project (I/O)."""

import os
from collections.abc import Iterator
from pathlib import Path

_SKIPPED = ("node_modules", "site-packages", "__pycache__")


def project_files(root: Path, endings: tuple[str, ...]) -> Iterator[Path]:
    """Files below the root with one of these endings, in a fixed order.

    What is hidden is passed over, and so are the folders of environments.
    """
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name not in _SKIPPED
            and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
        )
        for name in sorted(names):
            path = Path(folder, name)
            # A pipe among them would be waited on for ever.
            if name.endswith(endings) and not name.startswith(".") and path.is_file():
                yield path
