"""Whether the installed projects are those that a shipped trace stands for, found out without importing them (I/O).

A trace stands for the Python files that it passed through, whatever their project's version is called. What torch does
in C++ cannot be read: of torch the release must be the same as well.
"""

import hashlib
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

COMPARED = ("torch", "transformers", "accelerate")
UNDER_ADAPTERS = (*COMPARED, "peft")
"""The same where a model is trained through adapters."""


def installed_folders(projects: Iterable[str] = COMPARED) -> dict[str, Path]:
    """Folder of each of these projects that is installed."""
    found = {}
    for project in projects:
        spec = find_spec(project)
        places = list(spec.submodule_search_locations or ()) if spec else []
        if places:
            found[project] = Path(places[0])
    return found


def digest_of(path: Path) -> str | None:
    """Digest of a file's text, however its lines end; None where it cannot be read."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    return hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest()[:16]


def first_difference(files: Mapping[str, str], versions: Mapping[str, str], here: Mapping[str, str]) -> str | None:
    """What of the installed projects is not as a book was traced with, in words; None where all that is there is.

    `versions` are the book's, `here` those installed. What is not installed is not compared.
    """
    folders = installed_folders(versions)
    for project in folders:
        mine, theirs = versions.get(project, ""), here.get(project, "")
        if project == "torch" and _release(mine) != _release(theirs):
            return f"torch {theirs} (traced with {_release(mine)})"
    for file, digest in files.items():
        project, _, inside = file.partition("/")
        if project in folders and digest_of(folders[project] / inside) != digest:
            return f"{file} of {project} {here.get(project, '')} (traced with {versions.get(project, '')})"
    return None


def _release(version: str) -> str:
    return version.partition("+")[0]
