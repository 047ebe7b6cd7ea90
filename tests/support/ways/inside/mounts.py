"""Ways of mounts and namespaces."""

import ctypes
import os
import signal
import struct

from tools import DATA, LIBC, VICTIM, call, checked, way


@way("mounts: write again what can only be read")
def _() -> object:
    return checked(LIBC.mount(b"none", b"/sys", None, ctypes.c_ulong(0x20 | 0x1000), None))


@way("mounts: uncover what lies beneath")
def _() -> object:
    return checked(LIBC.umount2(os.path.dirname(DATA).encode(), 2))


@way("mounts: a new one by fsopen")
def _() -> object:
    return call(430, 430, b"tmpfs", 0)


@way("mounts: a copy by open_tree")
def _() -> object:
    return call(428, 428, -100, b"/", 1)


@way("mounts: attributes by mount_setattr")
def _() -> object:
    return call(442, 442, -100, b"/", 0, struct.pack("QQQQ", 0, 1, 0, 0), 32)


@way("mounts: another root by chroot")
def _() -> object:
    return os.chroot(DATA)


@way("namespaces: a new one by unshare")
def _() -> object:
    return checked(LIBC.unshare(0x10000000))


@way("namespaces: a new one by clone")
def _() -> object:
    child = call(56, 220, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    return child


@way("namespaces: a new one by clone3")
def _() -> object:
    child = call(435, 435, struct.pack("11Q", 0x10000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, 0), 88)
    if child == 0:
        os._exit(0)
    return child


@way("namespaces: join that of the first process")
def _() -> object:
    return call(308, 268, os.open("/proc/1/ns/mnt", os.O_RDONLY), 0)


@way("namespaces: join the victim's, by its descriptor")
def _() -> object:
    return call(308, 268, call(434, 434, VICTIM, 0), 0x00020000)
