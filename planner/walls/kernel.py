"""System calls that Python has no names for, through ctypes; numbers by machine (I/O)."""

import ctypes
import os
import platform
from collections.abc import Mapping

LIBC = ctypes.CDLL(None, use_errno=True)

AUDIT_ARCHITECTURE: Mapping[str, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""include/uapi/linux/audit.h: AUDIT_ARCH_X86_64, AUDIT_ARCH_AARCH64."""

_NUMBERS: Mapping[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bind": (49, 200),
    "bpf": (321, 280),
    "capset": (126, 91),
    "chmod": (90, None),
    "chown": (92, None),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "connect": (42, 203),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "fcntl": (72, 25),
    "finit_module": (313, 273),
    "flock": (73, 32),
    "fremovexattr": (199, 16),
    "fsconfig": (431, 431),
    "fsetxattr": (190, 7),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "futimesat": (261, None),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "ioperm": (173, None),
    "iopl": (172, None),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "landlock_add_rule": (445, 445),
    "landlock_create_ruleset": (444, 444),
    "landlock_restrict_self": (446, 446),
    "lchown": (94, None),
    "listen": (50, 201),
    "lookup_dcookie": (212, 18),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "msgget": (68, 186),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open": (2, None),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "openat": (257, 56),
    "openat2": (437, 437),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "prlimit64": (302, 261),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "removexattr": (197, 14),
    "request_key": (249, 218),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "seccomp": (317, 277),
    "semget": (64, 190),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "settimeofday": (164, 170),
    "setxattr": (188, 5),
    "shmget": (29, 194),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "tgkill": (234, 131),
    "tkill": (200, 130),
    "truncate": (76, 45),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "uselib": (134, None),
    "utime": (132, None),
    "utimensat": (280, 88),
    "utimes": (235, None),
    "vhangup": (153, 58),
}
"""x86_64 (arch/x86/entry/syscalls/syscall_64.tbl) and aarch64 (include/uapi/asm-generic/unistd.h); None: not there."""

LAST = 450
"""The newest call that the rules were written for (set_mempolicy_home_node); the numbers are the same everywhere."""


class NoWallError(Exception):
    """The kernel does not offer this wall; the message says what it said."""


def numbers(machine: str) -> dict[str, int]:
    """System calls by name on a machine; NoWallError for one whose numbers are not known."""
    if machine not in AUDIT_ARCHITECTURE:
        raise NoWallError(f"no table of system calls for {machine}")
    column = list(AUDIT_ARCHITECTURE).index(machine)
    return {name: number for name, pair in _NUMBERS.items() if (number := pair[column]) is not None}


def this_machine() -> str:
    """As `uname -m` has it."""
    return platform.machine()


def call(name: str, *arguments: object) -> int:
    """One system call by name. OSError where it fails; NoWallError on an unknown machine."""
    number = numbers(this_machine())[name]
    return _checked(LIBC.syscall(ctypes.c_long(number), *map(_widened, arguments)), name)


def control(option: int, *arguments: int) -> int:
    """prctl(2). OSError where it fails."""
    padded = [*arguments, 0, 0, 0, 0][:4]
    return _checked(LIBC.prctl(option, *map(ctypes.c_ulong, padded)), "prctl")


def mount(source: bytes, target: bytes, kind: bytes | None, flags: int, data: bytes | None = None) -> None:
    """mount(2). OSError where it fails."""
    _checked(LIBC.mount(source, target, kind, ctypes.c_ulong(flags), data), "mount")


def _widened(argument: object) -> object:
    return ctypes.c_long(argument) if isinstance(argument, int) else argument


def _checked(result: int, name: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result
