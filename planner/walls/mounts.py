"""The kernel's list of mounts, /proc/self/mountinfo, as values. Pure."""

import re
from dataclasses import dataclass

HIDDEN = frozenset(
    {
        "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs",
        "functionfs", "fusectl", "hugetlbfs", "mqueue", "nfsd", "proc", "pstore", "resctrl", "rpc_pipefs",
        "securityfs", "selinuxfs", "sysfs", "tracefs",
    }
)  # fmt: skip
"""File systems that hold no files: doors to the kernel or to devices."""
_OCTAL = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """A place where a file system is mounted."""

    place: bytes
    """Absolute path."""
    kind: str
    """Of its file system, such as `ext4`."""


def read_mounts(text: bytes) -> tuple[Mount, ...]:
    """What /proc/self/mountinfo says (man 5 proc): one mount for each place, the one on top, parents first."""
    found: dict[bytes, Mount] = {}
    for line in text.splitlines():
        left, divider, right = line.partition(b" - ")
        words = left.split(b" ")
        if divider and len(words) > 4:
            place = _OCTAL.sub(lambda match: bytes([int(match[1], 8)]), words[4])
            found[place] = Mount(place, right.split(b" ")[0].decode("ascii", "replace"))
    return tuple(sorted(found.values(), key=lambda mount: mount.place.rstrip(b"/").split(b"/")))


def below(mounts: tuple[Mount, ...], folder: bytes) -> tuple[Mount, ...]:
    """Those mounted somewhere under `folder`, itself not among them."""
    start = folder.rstrip(b"/") + b"/"
    return tuple(mount for mount in mounts if mount.place.startswith(start) and mount.place != folder)
