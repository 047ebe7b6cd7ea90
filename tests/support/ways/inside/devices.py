"""Ways of devices."""

import ctypes
import os

from tools import LIBC, OUT, TEMPORARY, checked, way

for device in OUT["devices"]:

    @way(f"devices: {device}")
    def _(device: str = device) -> object:
        os.close(os.open(device, os.O_RDONLY | os.O_NONBLOCK))
        return f"{device} opened"


@way("devices: a disk by mknod")
def _() -> object:
    path = os.path.join(TEMPORARY, "disk")
    os.mknod(path, 0o060600, os.makedev(*OUT["disk"]))
    return os.open(path, os.O_RDONLY)


@way("devices: words typed into the terminal (TIOCSTI)")
def _() -> object:
    for number in (0, 1, 2):
        checked(LIBC.ioctl(number, ctypes.c_ulong(0x5412), b"x"))
