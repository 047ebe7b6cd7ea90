"""Files that are there whole or not at all (I/O)."""

import contextlib
import os
from pathlib import Path


def replace_file(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Puts `content` at `path`: whoever reads sees what was there before, or all of it.

    `durable`: returns when it is on the disk. Raises OSError; nothing is left behind then. The folder must be there.
    """
    temporary = path.with_name(f".{path.name[:100]}.{os.urandom(4).hex()}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
