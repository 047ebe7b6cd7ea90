"""What libraries would import beside themselves although no plan needs it."""

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def without_torchao() -> Iterator[None]:
    """While transformers is imported, or peft wraps a model: both import torchao where that is installed.

    transformers quantizers/quantizer_torchao.py and peft tuners/lora/torchao.py do so for its quantised checkpoints. It
    takes a sixth of a second and puts lines on stderr about compiled kernels that do not load on this machine.
    """
    if "torchao" in sys.modules:
        yield
        return
    sys.modules["torchao"] = None  # type: ignore[assignment]  # importlib's own word for a module that is not there
    try:
        yield
    finally:
        del sys.modules["torchao"]


def torchao_asked_again() -> None:
    """transformers keeps its first answer (utils/import_utils.py: is_torchao_available); a script may want torchao."""
    asked = sys.modules.get("transformers.utils.import_utils")
    if asked is not None:
        asked.is_torchao_available.cache_clear()
