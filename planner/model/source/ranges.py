"""Safetensors headers of a hub repository by range requests: first bytes of each shard, never its data."""

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.source.headers import (
    INDEX_NAME,
    SINGLE_NAME,
    StoredTensor,
    StoredWeights,
    collect,
    read_header,
    shard_names,
)
from gpu_plan.planner.model.source.hub import CONNECT_SECONDS, endpoint, within

if TYPE_CHECKING:
    from collections.abc import Mapping

FIRST_BYTES = 100_000
"""Of each shard: enough for most headers, so that one request does."""
MAX_INDEX = 25_000_000
MAX_REMOTE_HEADER = 25_000_000
MAX_SHARDS = 512
SECONDS = 20.0


class _Absent(Exception):
    pass


def read_remote(repo_id: str, revision: str | None) -> tuple[StoredWeights | None, tuple[str, ...]]:
    """Stored weights of `repo_id` at `revision`, or None with a note that says why.

    Never raises for what the hub answers: the plan stands without it. Gives up after SECONDS.
    """
    try:
        return within(SECONDS, lambda: _read(repo_id, revision or "main"), "the hub did not give the headers")
    except _Absent:
        return None, ("the hub has no safetensors weights of this model: stored sizes not compared",)
    except Exception as error:
        reason = str(error).partition("\n")[0][:120] or type(error).__name__
        return None, (f"safetensors headers were not read from the hub ({reason})",)


def _read(repo_id: str, revision: str) -> tuple[StoredWeights | None, tuple[str, ...]]:
    try:
        index = _get(repo_id, INDEX_NAME, revision, 0, MAX_INDEX, whole=True)
    except _Absent:
        return collect([_header(repo_id, SINGLE_NAME, revision)]), ()
    names = shard_names(index, f"{INDEX_NAME} of {repo_id}")
    if len(names) > MAX_SHARDS:
        return None, (f"the checkpoint has {len(names):,} shards: headers not read",)
    with ThreadPoolExecutor(max_workers=8) as pool:
        shards = list(pool.map(lambda name: _header(repo_id, name, revision), names))
    return collect(shards), ()


def _header(repo_id: str, name: str, revision: str) -> "Mapping[str, StoredTensor]":
    first = _get(repo_id, name, revision, 0, FIRST_BYTES)

    def read(offset: int, length: int) -> bytes:
        if length > MAX_REMOTE_HEADER:
            raise InputError(f"the header of {name} claims {length:,} bytes")
        if offset + length <= len(first):
            return first[offset : offset + length]
        return _get(repo_id, name, revision, offset, length)

    return read_header(read, None, f"{name} of {repo_id}")


def _get(repo_id: str, name: str, revision: str, offset: int, length: int, *, whole: bool = False) -> bytes:
    """At most `length` bytes of a file from `offset`; a server that ignores ranges is cut off."""
    from huggingface_hub import get_session, get_token, hf_hub_url
    from huggingface_hub.utils import build_hf_headers

    headers: dict[str, Any] = dict(build_hf_headers(token=get_token()))
    headers["Accept-Encoding"] = "identity"
    if not whole:
        headers["Range"] = f"bytes={offset}-{offset + length - 1}"
    url = hf_hub_url(repo_id, name, revision=revision, endpoint=endpoint())
    session = get_session()
    with session.stream("GET", url, headers=headers, timeout=CONNECT_SECONDS, follow_redirects=True) as answer:
        if answer.status_code == 404:
            raise _Absent(name)
        if answer.status_code not in (200, 206):
            raise InputError(f"the hub answered {answer.status_code} for {name}")
        skip = offset if answer.status_code == 200 else 0
        kept = bytearray()
        for chunk in answer.iter_bytes(65_536):
            kept += chunk
            if len(kept) >= skip + length:
                break
    if whole and len(kept) >= length:
        raise InputError(f"{name} is larger than {length:,} bytes")
    return bytes(kept[skip : skip + length])
