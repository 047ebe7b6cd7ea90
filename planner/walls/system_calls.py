"""What code behind walls may ask of the kernel: everything but what is listed here.

Namespaces leave little to forbid. Where there are none, this closes what Landlock does not govern (man 7 landlock,
"Current limitations"): the attributes of files, locks, sockets, signals, System V's and POSIX's queues.
"""

import ctypes
import errno
from dataclasses import dataclass

from gpu_plan.planner.walls.filter import Condition, Rule, assemble, packed
from gpu_plan.planner.walls.kernel import AUDIT_ARCHITECTURE, LAST, NoWallError, call, numbers, this_machine

_UNIX, _INTERNET, _INTERNET6 = 1, 2, 10
_STREAM, _SEQUENCED = 1, 5
_NEW_NAMESPACES = 0x7E020080
"""CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""
_FORMAT, _CHARACTER, _BLOCK = 0xF000, 0x2000, 0x6000
_TRUNCATE, _ACCESS = 0o1000, 3
_HARMLESS_CONTROLS = (
    0x5401, 0x5402, 0x5403, 0x5404, 0x540F, 0x5413, 0x5414,  # a terminal's settings, group and size
    0x541B, 0x5421, 0x5450, 0x5451, 0x5452,  # FIONREAD, FIONBIO, FIONCLEX, FIOCLEX, FIOASYNC
    0x8910, 0x8912, 0x8913, 0x8915, 0x8921, 0x8927, 0x8933,  # SIOCGIF...: what a network device is called
)  # fmt: skip

_NEVER = (
    # other processes
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "pidfd_getfd", "kcmp",
    "move_pages", "migrate_pages",
    # file systems and namespaces
    "mount", "umount2", "pivot_root", "chroot", "fsopen", "fsconfig", "fsmount", "fspick", "move_mount", "open_tree",
    "mount_setattr", "unshare", "setns", "quotactl", "quotactl_fd", "swapon", "swapoff", "acct", "fanotify_init",
    "name_to_handle_at", "open_by_handle_at",
    # the kernel itself
    "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot", "bpf", "nfsservctl",
    "perf_event_open", "userfaultfd", "syslog", "lookup_dcookie", "uselib", "iopl", "ioperm", "vhangup",
    "add_key", "request_key", "keyctl",
    # the machine
    "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname",
)  # fmt: skip
_MISSING = ("io_uring_setup", "io_uring_enter", "io_uring_register", "memfd_create", "memfd_secret", "clone3")
"""Answered as by a kernel without them. What io_uring does passes no filter; memory in a memfd that nobody maps is
nobody's; clone3 has its flags where a filter cannot look, and libraries go back to clone."""

_SETS_NOTHING = (
    "chmod", "fchmod", "fchmodat", "chown", "fchown", "lchown", "fchownat", "utime", "utimes", "utimensat", "futimesat",
    "flock",
)  # fmt: skip
_NO_ATTRIBUTES = ("setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr")
_QUEUES = ("shmget", "semget", "msgget", "mq_open", "mq_unlink")
_OF_ANOTHER = ("sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler")
_HOLDS = (6, 7, 37, 38, 1024, 1026)
"""F_SETLK, F_SETLKW, those of open file descriptions, F_SETLEASE, F_NOTIFY: what others would wait for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Openings:
    """What the walls around this one leave to it."""

    namespaces: bool
    """Whether network, IPC and processes are namespaces of their own."""
    local_sockets: bool = False
    """Whether no socket of others can be named in the file system."""
    own_signals: bool = False
    """Whether signals reach nobody else anyhow."""
    truncation: bool = True
    """Whether truncation is governed already."""


def rules(openings: Openings, process: int) -> tuple[Rule, ...]:
    """For a process of this number and all that it starts."""
    own = _namespaced(openings) if openings.namespaces else _alone(openings, process)
    return (
        *(Rule(name, errno.EPERM) for name in _NEVER),
        *(Rule(name, errno.ENOSYS) for name in _MISSING),
        Rule("clone", errno.EPERM, (Condition(0, (0,), mask=_NEW_NAMESPACES),)),
        Rule("ioctl", errno.ENOTTY, (Condition(1, _HARMLESS_CONTROLS),)),
        *(
            Rule(name, errno.EPERM, (Condition(at, (_CHARACTER, _BLOCK), mask=_FORMAT, negated=True),))
            for name, at in (("mknod", 1), ("mknodat", 2))
        ),
        *own,
    )


def _namespaced(openings: Openings) -> tuple[Rule, ...]:
    families = (_INTERNET, _INTERNET6, *((_UNIX,) if openings.local_sockets else ()))
    return (
        Rule("socket", errno.EACCES, (Condition(0, families),)),
        Rule("socketpair", errno.EACCES, (Condition(0, (_UNIX,)), *(() if openings.local_sockets else _connected()))),
    )


def _connected() -> tuple[Condition, ...]:
    """A pair of datagram sockets could send to anybody's."""
    return (Condition(1, (_STREAM, _SEQUENCED), mask=0xF),)


def _alone(openings: Openings, process: int) -> tuple[Rule, ...]:
    found = [
        *(Rule(name, 0) for name in _SETS_NOTHING),
        *(Rule(name, errno.EOPNOTSUPP) for name in _NO_ATTRIBUTES),
        *(Rule(name, errno.ENOSYS) for name in (*_QUEUES, "openat2")),
        *(Rule(name, errno.EACCES) for name in ("socket", "bind", "connect", "listen")),
        Rule("socketpair", errno.EACCES, (Condition(0, (_UNIX,)), *_connected())),
        *(Rule(name, errno.EPERM, (Condition(0, (0,)),)) for name in _OF_ANOTHER),
        Rule("prlimit64", errno.EPERM, (Condition(0, (0, process)),)),
        Rule("setpriority", errno.EPERM, (Condition(0, (0,)), Condition(1, (0,)))),
        Rule("ioprio_set", errno.EPERM),
        Rule("fcntl", 0, (Condition(1, _HOLDS, negated=True),)),
    ]
    if not openings.own_signals:
        found += [
            *(Rule(name, errno.EPERM, (Condition(0, (process,)),)) for name in ("kill", "tgkill")),
            *(
                Rule(name, errno.EPERM)
                for name in ("tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal")
            ),
        ]
    if not openings.truncation:
        # Opened for reading, a file can be cut short all the same.
        found += [
            Rule("truncate", errno.EACCES),
            *(
                Rule(name, errno.EACCES, (Condition(at, _cutting(), mask=_TRUNCATE | _ACCESS, negated=True),))
                for name, at in (("open", 1), ("openat", 2))
            ),
        ]
    return tuple(found)


def _cutting() -> tuple[int, ...]:
    return (_TRUNCATE, _TRUNCATE | 3, 3)


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def restrict(forbidden: tuple[Rule, ...]) -> None:
    """Puts this process, and all that it starts, under the rules for good; it must have given up new privileges.

    NoWallError where the kernel has no filters or they may not be set.
    """
    machine = this_machine()
    program = assemble(
        forbidden,
        numbers(machine),
        architecture=AUDIT_ARCHITECTURE[machine],
        last=LAST,
        unknown=errno.ENOSYS,
    )
    held = ctypes.create_string_buffer(packed(program))
    asked = _Program(len(program), ctypes.addressof(held))
    try:
        call("seccomp", 1, 0, ctypes.byref(asked))
    except OSError as problem:
        raise NoWallError(f"seccomp: {problem.strerror}") from None
