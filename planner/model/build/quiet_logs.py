"""What libraries log while a model is built or called: stderr belongs to our own notes."""

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def quiet_logs(library: str = "transformers") -> Iterator[None]:
    """While it is open `library` logs nothing: it tells what it finds unusual, or lacks."""
    logger = logging.getLogger(library)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
