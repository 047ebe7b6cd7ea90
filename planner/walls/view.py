"""What is seen of the file systems behind the walls: all of it, and nothing of it can be changed (I/O).

Each folder without a mount in it gets an overlay whose upper layer is in memory. One that has mounts in it is made
anew, entry by entry: a kernel lets nobody but the owner of the outer namespace overlay it as a whole, since that would
uncover what lies beneath the mounts (fs/namespace.c: clone_private_mount, has_locked_children). What cannot be overlaid
is bound, and cannot be written. The doors to the kernel and to devices are closed but for those that any program needs.

Called by a process that has namespaces of its own; OSError where the kernel refuses what the wall rests on.
"""

import contextlib
import ctypes
import os
import stat

from gpu_plan.planner.walls.kernel import call, mount
from gpu_plan.planner.walls.mounts import HIDDEN, Mount, below, read_mounts

_NOSUID, _NODEV, _NOEXEC, _BIND, _REC, _PRIVATE, _RDONLY = 2, 4, 8, 0x1000, 0x4000, 0x40000, 1
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
_AT_RECURSIVE, _AT_FDCWD, _DETACH = 0x8000, -100, 2
_DEVICES = ("null", "zero", "full", "random", "urandom")
_MOST_ENTRIES = 2000
"""Of a folder that is made anew; a larger one can only be read."""
_OLD, _NEW, _LAYERS = b"/old", b"/new", b"/layers"
_OWN = (b"proc", b"sys", b"dev")
"""Folders of the root that are made otherwise."""


class View:
    """Builds it; `unchanged` are the places that can only be read."""

    def __init__(self, *, upper_bytes: int, shared_bytes: int) -> None:
        self._upper_bytes, self._shared_bytes = upper_bytes, shared_bytes
        self._mounts: tuple[Mount, ...] = ()
        self._layers = 0
        self.unchanged: list[bytes] = []

    def enter(self, directory: bytes) -> None:
        """Makes the view this process's root, and `directory` its working directory there."""
        with open("/proc/self/mountinfo", "rb") as file:
            self._mounts = read_mounts(file.read())
        mount(b"none", b"/", None, _REC | _PRIVATE)
        base = next(folder for folder in (b"/tmp", b"/var/tmp", b"/mnt", b"/usr") if os.path.isdir(folder))
        size = b"size=%d,nr_inodes=200000,mode=0755" % self._upper_bytes
        mount(b"tmpfs", base, b"tmpfs", _NOSUID | _NODEV, size)
        for name in (_OLD, _NEW, _LAYERS):
            os.mkdir(base + name)
        os.chdir(base)
        call("pivot_root", b".", b"old")
        os.chdir("/")
        mount(_NEW, _NEW, None, _BIND)  # a root is the root of a mount
        self._root()
        os.chdir(_NEW)
        call("pivot_root", b".", b".")
        call("umount2", b".", _DETACH)
        os.chdir("/")
        os.chdir(directory)

    def _root(self) -> None:
        # The old tree must still be there: a kernel gives a new /proc only to whoever sees a whole one already.
        os.mkdir(_NEW + b"/proc")
        self._proc(_NEW + b"/proc")
        for entry in os.scandir(_OLD):
            if entry.name not in _OWN:
                self._entry(b"/" + entry.name, entry)
        self._sys()
        self._devices()

    def _cover(self, place: bytes) -> None:
        """Puts what `place` shows, a folder, at the same path of the new tree."""
        old, new = _OLD + place.rstrip(b"/"), _NEW + place.rstrip(b"/")
        _folder(new, old)
        if self._kind(place) in HIDDEN:
            return
        if not below(self._mounts, place):
            self._overlay(place)
            return
        entries = _entries(old)
        if entries is None:  # what may not be listed, or is too large
            self._read_only(place)
            for inner in below(self._mounts, place):
                if inner.kind not in HIDDEN and os.path.isdir(_OLD + inner.place):
                    self._overlay(inner.place)
            return
        for entry in entries:
            self._entry(place.rstrip(b"/") + b"/" + entry.name, entry)

    def _entry(self, place: bytes, entry: "os.DirEntry[bytes]") -> None:
        new = _NEW + place
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), new)
        elif entry.is_dir():
            self._cover(place)
        elif entry.is_file():
            self._read_only(place)
        # Sockets, pipes and devices lead outside.

    def _overlay(self, place: bytes) -> None:
        layer = _LAYERS + b"/%d" % self._layers
        self._layers += 1
        upper, work = layer + b"/upper", layer + b"/work"
        os.mkdir(layer)
        _folder(upper, _OLD + place)
        os.mkdir(work)
        try:
            lower = os.open(_OLD + place, os.O_PATH | os.O_DIRECTORY)
        except OSError:
            return  # an empty folder stands in its place
        try:
            # Named by its descriptor, a path needs no escapes and no length.
            options = b"lowerdir=/new/proc/self/fd/%d,upperdir=%s,workdir=%s" % (lower, upper, work)
            _mount_overlay(_NEW + place, options)
        except OSError:
            self._read_only(place)
        finally:
            os.close(lower)

    def _read_only(self, place: bytes) -> None:
        """Shows a folder or a file as it is; where even that is refused, something empty stands in its place."""
        if not os.path.exists(_NEW + place):
            os.close(os.open(_NEW + place, os.O_CREAT | os.O_WRONLY, 0o600))
        with contextlib.suppress(OSError):
            _bind(_OLD + place, _NEW + place)
            if os.path.isdir(_OLD + place):
                self.unchanged.append(place)

    def _kind(self, place: bytes) -> str:
        return next((mount.kind for mount in self._mounts if mount.place == place), "")

    def _proc(self, target: bytes) -> None:
        try:
            mount(b"proc", target, b"proc", _NOSUID | _NODEV | _NOEXEC | _RDONLY)
        except OSError:
            # In a container that masks parts of its own. Processes of other user namespaces can be listed in it, and
            # neither entered nor read (security/commoncap.c: cap_ptrace_access_check).
            _bind(_OLD + b"/proc", target)

    def _sys(self) -> None:
        if os.path.isdir(_OLD + b"/sys"):
            os.mkdir(_NEW + b"/sys")
            _bind(_OLD + b"/sys", _NEW + b"/sys")

    def _devices(self) -> None:
        folder = _NEW + b"/dev"
        os.mkdir(folder)
        mount(b"tmpfs", folder, b"tmpfs", _NOSUID, b"size=64k,mode=0755")
        for name in _DEVICES:
            target = folder + b"/" + name.encode()
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
            mount(_OLD + b"/dev/" + name.encode(), target, None, _BIND)
        for name, leads in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
            os.symlink(b"/proc/self/" + leads.encode(), folder + b"/" + name.encode())
        os.mkdir(folder + b"/shm")
        mount(b"tmpfs", folder + b"/shm", b"tmpfs", _NOSUID | _NODEV, b"size=%d,mode=1777" % self._shared_bytes)
        _set(folder, _ATTR_RDONLY, recursive=False)


def _folder(path: bytes, like: bytes) -> None:
    """A folder with the permissions of another one."""
    if not os.path.isdir(path):
        os.mkdir(path)
    try:
        os.chmod(path, stat.S_IMODE(os.stat(like).st_mode) | stat.S_IRWXU)
    except OSError:
        os.chmod(path, 0o755)


def _entries(folder: bytes) -> "list[os.DirEntry[bytes]] | None":
    try:
        with os.scandir(folder) as found:
            entries = list(found)
    except OSError:
        return None
    return entries if len(entries) <= _MOST_ENTRIES else None


def _mount_overlay(target: bytes, options: bytes) -> None:
    """Marks of its own go into the user's extended attributes, where the layers' file system has them (Linux 6.6)."""
    try:
        mount(b"overlay", target, b"overlay", _NOSUID | _NODEV, options + b",userxattr")
    except OSError:
        mount(b"overlay", target, b"overlay", _NOSUID | _NODEV, options)


def _bind(source: bytes, target: bytes) -> None:
    """Shows `source` at `target` with all that is mounted in it, never to be written."""
    mount(source, target, None, _BIND | _REC)
    try:
        _set(target, _ATTR_RDONLY | _ATTR_NOSUID | _ATTR_NODEV, recursive=True)
    except OSError:
        call("umount2", target, _DETACH)
        raise


class _Attributes(ctypes.Structure):
    """struct mount_attr (man 2 mount_setattr)."""

    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def _set(place: bytes, attributes: int, *, recursive: bool) -> None:
    wanted = _Attributes(attributes, 0, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    call("mount_setattr", _AT_FDCWD, place, flags, ctypes.byref(wanted), ctypes.sizeof(wanted))
