"""Safetensors headers of a hub repository by range requests: first bytes of each shard, never its data."""

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.source.download import AbsentError, Allowance, get
from gpu_plan.planner.model.source.headers import (
    INDEX_NAME,
    SINGLE_NAME,
    StoredTensor,
    StoredWeights,
    collect,
    read_header,
    shard_names,
)
from gpu_plan.planner.model.source.hub import endpoint, within

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")

FIRST_BYTES = 100_000
"""Of each shard: enough for most headers, so that one request does."""
MAX_INDEX = 25_000_000
MAX_REMOTE_HEADER = 25_000_000
MAX_SHARDS = 512
MAX_BYTES = 64_000_000
"""Of all headers together; the largest published checkpoints have some 20 MB of them."""
SECONDS = 20.0


def read_remote(repo_id: str, revision: str | None) -> tuple[StoredWeights | None, tuple[str, ...]]:
    """Stored weights of `repo_id` at `revision`, or None with a note that says why.

    Never raises for what the hub answers: the plan stands without it. Gives up after SECONDS.
    """
    try:
        return within(SECONDS, lambda: _read(repo_id, revision or "main"), "the hub did not give the headers")
    except AbsentError:
        return None, ("the hub has no safetensors weights of this model: stored sizes not compared",)
    except Exception as error:
        reason = str(error).partition("\n")[0][:120] or type(error).__name__
        return None, (f"safetensors headers were not read from the hub ({reason})",)


def _read(repo_id: str, revision: str) -> tuple[StoredWeights | None, tuple[str, ...]]:
    hub = _Repository(repo_id, revision, Allowance(MAX_BYTES, SECONDS))
    try:
        index = hub.whole(INDEX_NAME, MAX_INDEX)
    except AbsentError:
        return collect([hub.header(SINGLE_NAME)]), ()
    names = shard_names(index, f"{INDEX_NAME} of {repo_id}")
    if len(names) > MAX_SHARDS:
        return None, (f"the checkpoint has {len(names):,} shards: headers not read",)
    return collect(_each(hub.header, names)), ()


def _each(work: "Callable[[str], T]", names: "Sequence[str]") -> "list[T]":
    """`work` on every name, eight at once. Raises the first error.

    Not concurrent.futures, whose threads Python waits for at its end: a server that drips would hold it.
    """
    results: dict[str, T] = {}
    errors: list[BaseException] = []
    left = iter(names)
    lock = threading.Lock()

    def run() -> None:
        while not errors:
            with lock:
                name = next(left, None)
            if name is None:
                return
            try:
                results[name] = work(name)
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(min(8, len(names)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [results[name] for name in names]


@dataclass(frozen=True, slots=True)
class _Repository:
    id: str
    revision: str
    allowance: Allowance

    def whole(self, name: str, most: int) -> bytes:
        """A file of at most `most` bytes."""
        content = self._get(name, 0, most + 1)
        if len(content) > most:
            raise InputError(f"{name} is larger than {most:,} bytes")
        return content

    def header(self, name: str) -> "Mapping[str, StoredTensor]":
        """The tensors that one shard declares."""
        first = self._get(name, 0, FIRST_BYTES)

        def read(offset: int, length: int) -> bytes:
            if length > MAX_REMOTE_HEADER:
                raise InputError(f"the header of {name} claims {length:,} bytes")
            if offset + length <= len(first):
                return first[offset : offset + length]
            return self._get(name, offset, length)

        return read_header(read, None, f"{name} of {self.id}")

    def _get(self, name: str, offset: int, length: int) -> bytes:
        from huggingface_hub import hf_hub_url

        url = hf_hub_url(self.id, name, revision=self.revision, endpoint=endpoint())
        return get(url, name, self.allowance, offset=offset, length=length)
