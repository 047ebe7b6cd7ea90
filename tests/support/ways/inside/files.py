"""Ways of files, most of them on another mount."""

import ctypes
import errno
import mmap
import os
import struct
import time

from tools import DATA, KEEP, LIBC, OUT, TEMPORARY, VICTIM, call, checked, libc, way, wrote


@way("files: create")
def _() -> object:
    return wrote(DATA + "/new.txt")


@way("files: overwrite")
def _() -> object:
    return wrote(KEEP)


@way("files: append")
def _() -> object:
    return wrote(KEEP, flags=os.O_APPEND)


@way("files: overwrite as Python does it")
def _() -> object:
    with open(KEEP, "w") as file:
        return file.write("out")


@way("files: overwrite through a writable mapping")
def _() -> object:
    descriptor = libc("open", KEEP, os.O_RDWR)
    with mmap.mmap(descriptor, 4) as mapped:
        mapped[:3] = b"out"


@way("files: truncate by name")
def _() -> object:
    return libc("truncate", KEEP, 0)


@way("files: truncate through a descriptor for reading")
def _() -> object:
    return libc("open", KEEP, os.O_RDONLY | os.O_TRUNC)


@way("files: truncate through a descriptor for neither")
def _() -> object:
    return libc("open", KEEP, 3 | os.O_TRUNC)


@way("files: delete")
def _() -> object:
    return libc("unlink", DATA + "/gone.txt")


@way("files: delete a folder")
def _() -> object:
    return libc("rmdir", DATA + "/empty")


@way("files: rename")
def _() -> object:
    return libc("rename", DATA + "/keep2.txt", DATA + "/renamed.txt")


@way("files: exchange two by renameat2")
def _() -> object:
    return call(316, 276, -100, KEEP.encode(), -100, (DATA + "/keep2.txt").encode(), 2)


@way("files: make a folder")
def _() -> object:
    return libc("mkdir", DATA + "/folder", 0o700)


@way("files: hard link")
def _() -> object:
    return libc("link", KEEP, DATA + "/hard")


@way("files: hard link into a folder of its own, written there")
def _() -> object:
    path = os.path.join(TEMPORARY, f"hard-{os.getpid()}")
    libc("link", KEEP, path)
    return wrote(path)


@way("files: symbolic link")
def _() -> object:
    return libc("symlink", "/etc/passwd", DATA + "/soft")


@way("files: write through a symbolic link of its own")
def _() -> object:
    link = os.path.join(TEMPORARY, f"link-{os.getpid()}")
    libc("symlink", KEEP, link)
    return wrote(link)


@way("files: pipe")
def _() -> object:
    os.mkfifo(DATA + "/pipe")


@way("files: change permissions")
def _() -> object:
    os.chmod(KEEP, 0o777)
    os.fchmod(os.open(KEEP, os.O_RDONLY), 0o777)


@way("files: make a program run as root")
def _() -> object:
    os.chmod(DATA + "/program", 0o4755)


@way("files: change the owner")
def _() -> object:
    os.chown(KEEP, 1234, 1234)


@way("files: change times")
def _() -> object:
    os.utime(KEEP, (1, 1))
    os.utime(os.open(KEEP, os.O_RDONLY), (1, 1))


@way("files: extended attributes")
def _() -> object:
    os.setxattr(KEEP, "user.out", b"1")


@way("files: flags of the file system (chattr)")
def _() -> object:
    descriptor = os.open(KEEP, os.O_RDONLY)
    flags = ctypes.c_int(0x40)  # no dump
    return checked(LIBC.ioctl(descriptor, ctypes.c_ulong(0x40086602), ctypes.byref(flags)))


@way("files: a lock that others wait for")
def _() -> object:
    import fcntl

    descriptor = os.open(KEEP, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    time.sleep(0.5)
    os.close(descriptor)


@way("files: openat2")
def _() -> object:
    how = struct.pack("QQQ", os.O_WRONLY, 0, 0)
    return os.write(call(437, 437, -100, KEEP.encode(), how, 24), b"out")


@way("files: by handle, past all mounts")
def _() -> object:
    handle, mount = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128)), ctypes.c_int()
    call(303, 264, -100, KEEP.encode(), handle, ctypes.byref(mount), 0)
    return call(304, 265, os.open(DATA, os.O_RDONLY), handle, os.O_RDWR)


@way("files: io_uring, past filters of system calls")
def _() -> object:
    return call(425, 425, 4, ctypes.create_string_buffer(120))


for called, number in (("self", "self"), ("1", 1), ("VICTIM", VICTIM), ("PARENT", os.getppid())):

    @way(f"files: through /proc/{called}/root")
    def _(number: object = number) -> object:
        return wrote(f"/proc/{number}/root{KEEP}")


@way("files: through /proc/VICTIM/cwd")
def _() -> object:
    return wrote(f"/proc/{VICTIM}/cwd/keep.txt")


@way("files: through an inherited descriptor")
def _() -> object:
    for number in range(3, 4096):
        try:
            found = os.open("../" * 20 + KEEP, os.O_WRONLY, dir_fd=number)
        except OSError:
            continue
        return os.write(found, b"out")
    raise OSError(errno.EBADF, "no folder is open")


for place in OUT["places"]:

    @way(f"files: in {place['called']}")
    def _(path: str = place["path"]) -> object:
        return wrote(path)


@way("files: in a folder that is mounted in it")
def _() -> object:
    LIBC.umount2(DATA.encode(), 2)
    return checked(LIBC.mount(b"/", DATA.encode(), None, ctypes.c_ulong(0x1000), None))
