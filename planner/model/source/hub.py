"""The hub: the local Hugging Face cache first, then config.json and nothing else over the network.

huggingface_hub is imported only when the network is really needed: importing it takes 0.15 s.
"""

import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gpu_plan.planner.errors import InputError, PlanError, UnreachableError
from gpu_plan.planner.foreign.files import read_bytes
from gpu_plan.planner.model.catalog_index import nearest
from gpu_plan.planner.model.config_reader import MAX_BYTES, parse_object
from gpu_plan.planner.model.source.download import Allowance, get
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.whole_file import replace_file

if TYPE_CHECKING:
    from huggingface_hub.errors import HfHubHTTPError

T = TypeVar("T")

CONNECT_SECONDS = 6.0
"""For the hub's first answer."""
TOTAL_SECONDS = 25.0
"""For all that is fetched; a config has a few kilobytes."""
_REPO_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9_][\w.-]{0,95}", re.ASCII)
_MAX_REFERENCE = 1000
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LOGIN = "set HF_TOKEN, or run `hf auth login`"


@dataclass(frozen=True, slots=True, kw_only=True)
class HubConfig:
    """A config.json of a hub repository, as it lies in the local cache."""

    path: Path
    commit: str


def is_repo_id(text: str) -> bool:
    """Whether the hub could have a repository called `text` (`name` or `owner/name`)."""
    return bool(_REPO_ID.fullmatch(text)) and "--" not in text and ".." not in text and text[-1] not in ".-"


def cache_folder() -> Path:
    """Where huggingface_hub keeps files: HF_HUB_CACHE, else `hub` under HF_HOME or ~/.cache/huggingface.

    Mirrors huggingface_hub/constants.py.
    """
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if not named:
        user_cache = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
        home = os.environ.get("HF_HOME") or os.path.join(user_cache, "huggingface")
        named = os.path.join(home, "hub")
    return Path(os.path.expandvars(os.path.expanduser(named)))


def is_offline() -> bool:
    """Whether the user forbids the network, as huggingface_hub/constants.py reads it."""
    value = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return value.upper() in {"1", "ON", "YES", "TRUE"}


def _cached_repo(repo_id: str) -> Path:
    return cache_folder() / ("models--" + repo_id.replace("/", "--"))


def find_cached(repo_id: str, revision: str | None) -> HubConfig | None:
    """The cached config.json of `repo_id` at `revision` (default main), or None.

    Mirrors huggingface_hub's file_download.py `try_to_load_from_cache`. Raises UnreachableError if the cache
    cannot be read.
    """
    repo = _cached_repo(repo_id)
    wanted = revision or "main"
    try:
        reference = repo / "refs" / wanted
        commit = read_bytes(reference, _MAX_REFERENCE).decode("utf-8").strip() if reference.is_file() else wanted
        path = repo / "snapshots" / commit / "config.json"
        if ".." in Path(wanted, commit).parts or not path.is_file():
            return None
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise UnreachableError(f"the Hugging Face cache of {repo_id} cannot be read ({error}): check {repo}") from None
    return HubConfig(path=path, commit=commit)


def fetch(repo_id: str, revision: str | None) -> HubConfig:
    """Fetch config.json of `repo_id` into the local cache.

    Raises UnreachableError within TOTAL_SECONDS if the hub does not give it (no network, unknown, gated,
    private, offline mode), InputError if the repository has no config.json or one beyond all bounds.
    """
    if is_offline():
        raise UnreachableError(
            f"{repo_id} is neither in the catalog nor in the local cache, and HF_HUB_OFFLINE forbids asking"
            f" the hub: unset it or name a local folder.{nearest(repo_id)}"
        )
    with _quiet_hub():
        return within(TOTAL_SECONDS, lambda: _fetch(repo_id, revision), f"the hub did not give {repo_id}")


def within(seconds: float, work: Callable[[], T], what: str) -> T:
    """The result of `work`, given up on with UnreachableError after `seconds`; its exceptions pass through.

    The timeouts of HTTP clients count from byte to byte and retries add up; this bounds the whole.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise UnreachableError(f"{what} within {seconds:.0f} seconds: check the network, or name a local folder")
    return results[0]


@contextmanager
def _quiet_hub() -> Iterator[None]:
    """Retries are logged as warnings of several lines; the user gets one error instead."""
    import logging

    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def endpoint() -> str:
    """The hub's address: HF_ENDPOINT or the public one."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def _fetch(repo_id: str, revision: str | None) -> HubConfig:
    from huggingface_hub import get_hf_file_metadata, get_token, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError

    url = hf_hub_url(repo_id, "config.json", revision=revision, endpoint=endpoint())
    try:
        found = get_hf_file_metadata(url, token=get_token(), timeout=CONNECT_SECONDS, endpoint=endpoint())
        if found.size is not None and found.size > MAX_BYTES:
            raise InputError(f"config.json of {repo_id} has {found.size:,} bytes, at most {MAX_BYTES:,} are read")
        commit = found.commit_hash
        if commit is None or not _COMMIT.fullmatch(commit):
            raise UnreachableError(f"{endpoint()} does not say which commit {repo_id} is at: it is not a hub")
        content = get(
            hf_hub_url(repo_id, "config.json", revision=commit, endpoint=endpoint()),
            f"config.json of {repo_id}",
            Allowance(MAX_BYTES, TOTAL_SECONDS),
        )
        if found.size is not None and len(content) != found.size:
            raise UnreachableError(
                f"the hub gave {len(content):,} of the {found.size:,} bytes of config.json of {repo_id}: try again"
            )
        parse_object(content, f"config.json of {repo_id}", max_bytes=MAX_BYTES)
        path = _keep(repo_id, revision, commit, content)
    except HfHubHTTPError as error:
        raise refusal(error, repo_id, revision) from None
    except PlanError:
        raise
    except Exception as error:
        # httpx's errors, OSError from the cache's disk, huggingface_hub's own: nothing was reached.
        raise _no_answer(repo_id, error) from None
    return HubConfig(path=path, commit=commit)


def _keep(repo_id: str, revision: str | None, commit: str, content: bytes) -> Path:
    """Puts a config where `find_cached`, and huggingface_hub itself, will find it. Raises OSError.

    Its layout, without the blobs that snapshots are links to where several commits share a file
    (file_download.py: _create_symlink copies the same where there are no links).
    """
    repo = _cached_repo(repo_id)
    path = repo / "snapshots" / commit / "config.json"
    _replace(path, content)
    if (revision or "main") != commit and ".." not in Path(revision or "").parts:
        _replace(repo / "refs" / (revision or "main"), commit.encode())
    return path


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, content)


def refusal(error: "HfHubHTTPError", repo_id: str, revision: str | None) -> PlanError:
    """The one line for the hub's answer `error`."""
    from huggingface_hub import errors, get_token

    status = error.response.status_code
    if isinstance(error, errors.GatedRepoError):
        asked = f"ask for access at {endpoint()}/{repo_id}"
        step = f"the token given has no access: {asked}" if get_token() else f"{asked}, then {_LOGIN}"
        return UnreachableError(f"{repo_id} is gated: {step}")
    if isinstance(error, errors.RevisionNotFoundError):
        return UnreachableError(f"{repo_id} has no revision {revision!r} on the hub: name a branch, tag or commit")
    if isinstance(error, errors.RemoteEntryNotFoundError):
        return InputError(
            f"{repo_id} has no config.json on the hub, so it is not a transformers checkpoint (GGUF and adapter"
            " repositories have none): name the model it was made from"
        )
    if isinstance(error, errors.DisabledRepoError):
        return UnreachableError(f"the hub has disabled {repo_id}: name a local folder or another model")
    if status == 401 and get_token():
        return UnreachableError(f"the hub refuses the token given for {repo_id}: correct it ({_LOGIN})")
    if isinstance(error, errors.RepositoryNotFoundError) or status in (401, 404):
        hint = nearest(repo_id)
        return UnreachableError(f"the hub has no model {repo_id}, or a private one: check the name or {_LOGIN}.{hint}")
    if status == 403:
        return UnreachableError(f"the hub forbids {repo_id} to this token: ask for access or {_LOGIN}")
    return UnreachableError(f"the hub answered {status} for {repo_id}: try again later, or name a local folder")


def _no_answer(repo_id: str, error: Exception) -> UnreachableError:
    reason = str(error).partition("\n")[0][:120] or type(error).__name__
    return UnreachableError(
        f"{repo_id} is neither in the catalog nor in the local cache, and the hub cannot be reached"
        f" ({endpoint()}: {reason}): check the network, or name a local folder.{nearest(repo_id)}"
    )
