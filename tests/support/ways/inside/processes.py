"""Ways of other processes."""

import ctypes
import errno
import os
import resource
import signal
import struct
import time

from tools import OUT, VICTIM, call, libc, way, wrote


@way("processes: a signal to another")
def _() -> object:
    os.kill(VICTIM, signal.SIGTERM)


@way("processes: a signal to another, by its descriptor")
def _() -> object:
    signal.pidfd_send_signal(os.pidfd_open(VICTIM), signal.SIGTERM)


@way("processes: a signal to another's thread")
def _() -> object:
    return call(200, 130, VICTIM, signal.SIGTERM)


@way("processes: a queued signal")
def _() -> object:
    return call(129, 138, VICTIM, signal.SIGTERM, struct.pack("iiii", signal.SIGTERM, 0, -1, 0) + bytes(112))


@way("processes: trace another")
def _() -> object:
    return call(101, 117, 16, VICTIM, 0, 0)


@way("processes: be traced by the parent")
def _() -> object:
    return call(101, 117, 0, 0, 0, 0)


@way("processes: write into another's memory")
def _() -> object:
    content = ctypes.create_string_buffer(b"out")
    local = struct.pack("QQ", ctypes.addressof(content), 3)
    return call(311, 271, VICTIM, local, 1, struct.pack("QQ", OUT["address"], 3), 1, 0)


@way("processes: read another's memory")
def _() -> object:
    content = ctypes.create_string_buffer(8)
    local = struct.pack("QQ", ctypes.addressof(content), 8)
    return call(310, 270, VICTIM, local, 1, struct.pack("QQ", OUT["address"], 8), 1, 0)


@way("processes: /proc/VICTIM/mem")
def _() -> object:
    descriptor = libc("open", f"/proc/{VICTIM}/mem", os.O_RDWR)
    return os.pwrite(descriptor, b"out", OUT["address"])


@way("processes: another's environment")
def _() -> object:
    return len(open(f"/proc/{VICTIM}/environ", "rb").read())


@way("processes: another's open files")
def _() -> object:
    return libc("open", f"/proc/{VICTIM}/fd/0", os.O_RDONLY | os.O_NONBLOCK)


@way("processes: the parent's open files")
def _() -> object:
    found = []
    for name in os.listdir(f"/proc/{os.getppid()}/fd"):
        path = f"/proc/{os.getppid()}/fd/{name}"
        try:
            leads = os.readlink(path)
        except OSError:
            continue
        if leads.startswith("/") and not leads.startswith("/dev/"):
            found.append(leads)
    if not found:
        raise OSError(errno.ENOENT, "it holds no file")
    return found


@way("processes: take another's open file")
def _() -> object:
    return call(438, 438, os.pidfd_open(VICTIM), 0, 0)


@way("processes: another's limits")
def _() -> object:
    return resource.prlimit(VICTIM, resource.RLIMIT_NOFILE, (8, 8))


@way("processes: another's priority")
def _() -> object:
    return os.setpriority(os.PRIO_PROCESS, VICTIM, 19)


@way("processes: the priority of all of this user's")
def _() -> object:
    return os.setpriority(os.PRIO_USER, os.getuid(), 19)


@way("processes: another's processors")
def _() -> object:
    return os.sched_setaffinity(VICTIM, {0})


@way("processes: another's scheduling")
def _() -> object:
    return os.sched_setscheduler(VICTIM, os.SCHED_IDLE, os.sched_param(0))


@way("processes: offer another to the memory killer")
def _() -> object:
    return wrote(f"/proc/{VICTIM}/oom_score_adj", "1000")


@way("processes: live on, in a session of its own")
def _() -> object:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(3600)
        os._exit(0)
    return "started"
