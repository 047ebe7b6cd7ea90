"""Ways of the kernel's own."""
# ruff: noqa: SIM115 - what is opened is left to the process's end

import ctypes
import errno
import os
import resource
import socket
import struct
import time

from tools import LIBC, OUT, call, checked, libc, way, wrote


@way("kernel: keys")
def _() -> object:
    return call(248, 217, b"user", b"plan-ways-out", b"out", 3, -4)


@way("kernel: another session of keys")
def _() -> object:
    return call(250, 219, 1, b"plan-ways-out")


@way("kernel: shared memory of System V")
def _() -> object:
    number = checked(LIBC.shmget(OUT["shared"], 4096, 0o600))
    LIBC.shmat.restype = ctypes.c_void_p
    ctypes.memmove(LIBC.shmat(number, None, 0), b"out", 3)
    return number


@way("kernel: semaphores of System V")
def _() -> object:
    return checked(LIBC.semctl(checked(LIBC.semget(OUT["shared"], 1, 0o600)), 0, 16, 7))


@way("kernel: message queues of POSIX")
def _() -> object:
    return checked(LIBC.mq_open(f"/{OUT['abstract']}".encode(), os.O_CREAT | os.O_RDWR, 0o600, None))


@way("kernel: message queues of System V")
def _() -> object:
    return checked(LIBC.msgget(OUT["shared"], 0o600))


@way("kernel: the clock")
def _() -> object:
    time.clock_settime(time.CLOCK_REALTIME, time.time())


@way("kernel: the host's name")
def _() -> object:
    return socket.sethostname("plan-ways-out")


@way("kernel: settings in /proc/sys")
def _() -> object:
    return wrote("/proc/sys/kernel/panic", open("/proc/sys/kernel/panic").read())


@way("kernel: /proc/sysrq-trigger")
def _() -> object:
    return wrote("/proc/sysrq-trigger", "h")


@way("kernel: /sys")
def _() -> object:
    return wrote("/sys/kernel/mm/ksm/run", "0")


@way("kernel: control groups")
def _() -> object:
    unified = "/sys/fs/cgroup/unified"
    folder = f"{unified if os.path.isdir(unified) else '/sys/fs/cgroup'}/plan-ways-out"
    return libc("mkdir", folder, 0o700)


@way("kernel: the start of programs (core_pattern)")
def _() -> object:
    return wrote("/proc/sys/kernel/core_pattern", open("/proc/sys/kernel/core_pattern").read())


@way("kernel: bpf")
def _() -> object:
    return call(321, 280, 0, ctypes.create_string_buffer(struct.pack("IIIII", 2, 4, 4, 1, 0) + bytes(100)), 120)


@way("kernel: userfaultfd")
def _() -> object:
    return call(323, 282, 1)


@way("kernel: perf_event_open")
def _() -> object:
    return call(298, 241, struct.pack("IIQ", 1, 112, 0) + bytes(96), 0, -1, -1, 0)


@way("kernel: modules")
def _() -> object:
    return call(175, 105, b"x", 1, b"")


@way("kernel: another kernel (kexec)")
def _() -> object:
    return call(246, 104, 0, 0, 0, 0)


@way("kernel: what Ctrl-Alt-Del does (reboot)")
def _() -> object:
    return call(169, 142, 0xFEE1DEAD - 2**32, 672274793, 0, 0)


@way("kernel: its log")
def _() -> object:
    return call(103, 116, 10, 0, 0)


@way("kernel: swapping off")
def _() -> object:
    return call(168, 225, b"/nowhere-plan")


@way("kernel: calls of another architecture (x32)")
def _() -> object:
    return call(0x40000000 + 39, 0x40000000 + 39)


@way("kernel: capabilities")
def _() -> object:
    held = {line.split()[0]: int(line.split()[1], 16) for line in open("/proc/self/status") if line.startswith("Cap")}
    # One may stay: to read what this user's rights would not. The bounding set gives nothing without new privileges.
    if not any(value & ~4 for name, value in held.items() if name != "CapBnd:"):
        raise OSError(errno.EPERM, "none is held, none can be had")
    return held


@way("kernel: programs that run as root (setuid)")
def _() -> object:
    if "NoNewPrivs:\t1" in open("/proc/self/status").read():
        raise OSError(errno.EPERM, "no program gives new rights")
    return "they run as root"


@way("kernel: a core file")
def _() -> object:
    resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20))
