"""Files that a script writes where only a scratch folder can be written: Python's own calls are led there.

Namespaces lay an overlay over what the script sees; Landlock can only refuse. So that a script that makes its output
folder, as every Trainer does, is captured all the same, `open`, `os.mkdir` and their like work on a copy: what is
written lies in the scratch folder under its own path, and is what the script sees from then on. What does not go
through these functions reaches the kernel, which refuses.
"""

import builtins
import contextlib
import errno
import glob
import io
import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_MOST_COPIED = 2**26
_STAT, _LSTAT, _MKDIR, _LISTDIR, _SCANDIR = os.stat, os.lstat, os.mkdir, os.listdir, os.scandir
_OPEN, _FILE, _REMOVE, _RMDIR, _RENAME = os.open, io.open, os.remove, os.rmdir, os.rename


class Redirect:
    """Where each path is: in the scratch folder once the script has changed it."""

    def __init__(self, scratch: str) -> None:
        self._scratch = os.path.abspath(scratch)
        self._copies = os.path.join(self._scratch, "written")
        self._gone: set[str] = set()
        _MKDIR(self._copies)

    def install(self) -> None:
        """For the rest of this process."""
        functions: dict[str, Callable[..., Any]] = {
            "open": self._os_open, "mkdir": self._mkdir, "remove": self._remove, "unlink": self._remove,
            "rmdir": self._rmdir, "rename": self._rename, "replace": self._rename, "scandir": self._scan,
            "listdir": self._listed, "stat": self._reading(_STAT), "lstat": self._reading(_LSTAT),
            "access": self._reading(os.access), "chdir": self._reading(os.chdir),
            **{name: self._settling(getattr(os, name)) for name in ("chmod", "chown", "utime")},
        }  # fmt: skip
        for name, function in functions.items():
            setattr(os, name, function)
        builtins.open = io.open = self._open
        self._take_kept(functions)
        # What it does below open folders would be out of sight.
        vars(shutil)["_use_fd_functions"] = False

    @staticmethod
    def _take_kept(functions: dict[str, Callable[..., Any]]) -> None:
        """From Python 3.13 on, what pathlib globs with keeps functions of `os` of its own (glob.py: _Globber)."""
        for kept in vars(glob).values():
            for name, original in (("scandir", _SCANDIR), ("lstat", _LSTAT)):
                held = vars(kept).get(name) if isinstance(kept, type) else None
                if isinstance(held, staticmethod) and held.__func__ is original:
                    setattr(kept, name, staticmethod(functions[name]))

    # -- where a path is ---------------------------------------------------------------------------------

    def _read(self, path: Any) -> Any:
        """Where it is read. FileNotFoundError for what the script has deleted."""
        place = self._place(path)
        if place is None:
            return path
        if self._deleted(place):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fsdecode(path))
        copy = self._copies + place
        return copy if _there(copy) else path

    def _written(self, path: Any, *, keep: bool) -> Any:
        """Where it is written; with `keep`, as a copy of what it was."""
        place = self._place(path)
        if place is None:
            return path
        copy, folder = self._copies + place, os.path.dirname(place)
        if not self._deleted(folder) and _there(folder):
            self._folders(folder)
        if keep and not self._deleted(place) and not _there(copy) and _there(place):
            if _STAT(place).st_size > _MOST_COPIED:
                raise OSError(errno.EFBIG, "no file is changed while plan looks at the script, and no copy is so large")
            with _FILE(place, "rb") as source, _FILE(copy, "wb") as target:
                shutil.copyfileobj(source, target)
        self._gone.discard(place)
        return copy

    def _place(self, path: Any) -> str | None:
        """None for what is led nowhere: descriptors, devices, the kernel's own files, the scratch folder."""
        if isinstance(path, int) or path is None:
            return None
        place = os.path.abspath(os.fsdecode(path))
        left = place == self._scratch or place.startswith((self._scratch + os.sep, "/dev/", "/proc/", "/sys/"))
        return None if left else place

    def _deleted(self, place: str) -> bool:
        while place != os.sep:
            if place in self._gone:
                return True
            place = os.path.dirname(place)
        return False

    def _folders(self, folder: str) -> None:
        missing = []
        while not _there(self._copies + folder) and folder != os.sep:
            missing.append(folder)
            folder = os.path.dirname(folder)
        for one in reversed(missing):
            _MKDIR(self._copies + one)

    def _exists(self, path: Any) -> bool:
        try:
            return _there(self._read(path))
        except OSError:
            return False

    # -- what stands for the functions of os and io --------------------------------------------------------

    def _reading(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def led(path: Any, *args: Any, **given: Any) -> Any:
            return function(path if given.get("dir_fd") is not None else self._read(path), *args, **given)

        return led

    def _settling(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Attributes of what was not written stay as they are."""

        def led(path: Any, *args: Any, **given: Any) -> Any:
            place = None if given.get("dir_fd") is not None else self._place(path)
            if place is None:
                return function(path, *args, **given)
            found = self._read(path)
            _LSTAT(found)
            return function(found, *args, **given) if found == self._copies + place else None

        return led

    def _open(self, file: Any, mode: str = "r", *args: Any, **given: Any) -> Any:
        if set(mode) & set("wax+"):
            if "x" in mode and self._exists(file):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fsdecode(file))
            return _FILE(self._written(file, keep="w" not in mode), mode, *args, **given)
        return _FILE(self._read(file), mode, *args, **given)

    def _os_open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is not None:
            return _OPEN(path, flags, mode, dir_fd=dir_fd)
        if flags & _WRITES:
            if not flags & os.O_CREAT:
                self._read(path)
            elif flags & os.O_EXCL and self._exists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fsdecode(path))
            return _OPEN(self._written(path, keep=not flags & os.O_TRUNC), flags, mode)
        return _OPEN(self._read(path), flags, mode)

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None:
            _MKDIR(path, mode, dir_fd=dir_fd)
            return
        if self._exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fsdecode(path))
        _MKDIR(self._written(path, keep=False), mode)

    def _remove(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._take_away(path, dir_fd, _REMOVE)

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        if dir_fd is None and self._place(path) is not None and self._listed(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), os.fsdecode(path))
        self._take_away(path, dir_fd, _RMDIR)

    def _take_away(self, path: Any, dir_fd: int | None, function: Callable[..., None]) -> None:
        place = None if dir_fd is not None else self._place(path)
        if place is None:
            function(path, dir_fd=dir_fd)
            return
        _LSTAT(self._read(path))
        if _there(self._copies + place):
            function(self._copies + place)
        if _there(place):
            self._gone.add(place)

    def _rename(self, src: Any, dst: Any, **given: Any) -> None:
        place = self._place(src)
        if place is None or given:
            _RENAME(src, self._written(dst, keep=False), **given)
            return
        if not _there(self._copies + place) and os.path.isdir(src):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), os.fsdecode(src))
        self._read(src)
        _RENAME(self._written(src, keep=True), self._written(dst, keep=False))
        if _there(place):
            self._gone.add(place)

    def _listed(self, path: Any = ".") -> list[Any]:
        place = self._place(path)
        if place is None:
            return _LISTDIR(path)
        names: dict[Any, None] = {}
        for folder in self._layers(path, place):
            names |= dict.fromkeys(_LISTDIR(folder))
        return [name for name in names if os.path.join(place, os.fsdecode(name)) not in self._gone]

    @contextlib.contextmanager
    def _scanned(self, path: Any, place: str) -> Iterator[Iterator[Any]]:
        found: dict[Any, Any] = {}
        for folder in self._layers(path, place):
            with _SCANDIR(folder) as entries:
                found |= {entry.name: entry for entry in entries}
        yield (entry for name, entry in found.items() if os.path.join(place, os.fsdecode(name)) not in self._gone)

    def _scan(self, path: Any = ".") -> Any:
        place = self._place(path)
        if place is None or not _there(self._copies + place):
            self._read(path)
            return _SCANDIR(path)
        return _Entries(self._scanned(path, place))

    def _layers(self, path: Any, place: str) -> Iterator[Any]:
        """Folders that hold what is seen of one: what it was, then what was written."""
        copy: Any = self._copies + place
        self._read(path)
        if isinstance(path, bytes):
            copy = os.fsencode(copy)
        if _there(place):
            yield path
        if _there(os.fsdecode(copy)):
            yield copy
        elif not _there(place):
            yield path  # which says that there is none


class _Entries:
    """As os.scandir gives them: an iterator, and a context."""

    def __init__(self, found: "contextlib.AbstractContextManager[Iterator[Any]]") -> None:
        with found as entries:
            self._entries = iter(list(entries))

    def __iter__(self) -> "_Entries":
        return self

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> "_Entries":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())


def _there(path: str) -> bool:
    try:
        _LSTAT(path)
    except (OSError, ValueError):
        return False
    return True
