"""A training script that tries to get out; its argument is a JSON file that says what there is to reach.

Prints a line for each way: `WAY name what`, where what is `refused: why` or `done: what was seen`. A way that is done
may have gone nowhere: that is seen from outside.
"""
# ruff: noqa: SIM115 - what is opened is left to the process's end

import ctypes
import errno
import json
import mmap
import os
import resource
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable

OUT = json.load(open(sys.argv[1]))
DATA, KEEP, VICTIM = OUT["data"], OUT["data"] + "/keep.txt", OUT["victim"]
LIBC = ctypes.CDLL(None, use_errno=True)
TEMPORARY = os.environ.get("TMPDIR", "/tmp")
X86 = os.uname().machine == "x86_64"
WAYS: list[tuple[str, Callable[[], object]]] = []


def way(name: str) -> Callable[[Callable[[], object]], Callable[[], object]]:
    def kept(function: Callable[[], object]) -> Callable[[], object]:
        WAYS.append((name, function))
        return function

    return kept


def call(x86: int, arm: int, *arguments: object) -> int:
    """A system call by its number."""
    result = LIBC.syscall(*(ctypes.c_long(a) if isinstance(a, int) else a for a in (x86 if X86 else arm, *arguments)))
    return checked(result)


def checked(result: int) -> int:
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def libc(name: str, *arguments: object) -> int:
    """A function of the C library: what Python itself would refuse or redirect is passed by."""
    return checked(getattr(LIBC, name)(*(a.encode() if isinstance(a, str) else a for a in arguments)))


def wrote(path: str, content: str = "out", flags: int = os.O_CREAT | os.O_TRUNC) -> str:
    descriptor = libc("open", path, os.O_WRONLY | flags, 0o600)
    libc("write", descriptor, content, len(content))
    os.close(descriptor)
    return f"{path} written"


# -- files on another mount ----------------------------------------------------------------------------------------


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


# -- mounts and namespaces -----------------------------------------------------------------------------------------


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


# -- devices -------------------------------------------------------------------------------------------------------

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


# -- network -------------------------------------------------------------------------------------------------------


@way("network: TCP to this machine")
def _() -> object:
    socket.create_connection(("127.0.0.1", OUT["tcp"]), timeout=5).send(b"out")


@way("network: TCP over IPv6")
def _() -> object:
    socket.create_connection(("::1", OUT["tcp6"] or 9), timeout=5).send(b"out")


@way("network: UDP")
def _() -> object:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"out", ("127.0.0.1", OUT["udp"]))


@way("network: a name's address")
def _() -> object:
    return socket.getaddrinfo("example.com", 80)


@way("network: a socket in the file system")
def _() -> object:
    return _unix(OUT["unix"])


@way("network: an abstract socket")
def _() -> object:
    return _unix("\0" + OUT["abstract"])


@way("network: a datagram from a pair of sockets")
def _() -> object:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"out", OUT["datagram"])


@way("network: sockets of docker, D-Bus, the journal, the ssh agent")
def _() -> object:
    reached = []
    for path in OUT["sockets"]:
        try:
            reached.append(_unix(path))
        except OSError:
            continue
    if not reached:
        raise OSError(errno.ECONNREFUSED, "none of them answers")
    return reached


@way("network: kernel's own (netlink)")
def _() -> object:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).bind((0, 0))
    return "bound"


@way("network: packets")
def _() -> object:
    return socket.socket(socket.AF_PACKET, socket.SOCK_RAW)


@way("network: the machine's host (vsock)")
def _() -> object:
    return socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)


@way("network: ICMP")
def _() -> object:
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)


def _unix(path: str) -> str:
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(5)
    made.connect(path)
    made.send(b"out")
    return path


# -- processes -----------------------------------------------------------------------------------------------------


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


# -- the kernel ----------------------------------------------------------------------------------------------------


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


# -- memory, secrets, words ----------------------------------------------------------------------------------------


@way("memory: in files that nobody maps (memfd)")
def _() -> object:
    return os.memfd_create("out")


@way("files: a file without end")
def _() -> object:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open(os.path.join(TEMPORARY, f"endless-{os.getpid()}"), "wb") as file:
        os.ftruncate(file.fileno(), OUT["most"] + 1)
        return "larger than the bound"


@way("secrets: the environment's")
def _() -> object:
    found = [name for name, value in os.environ.items() if OUT["secret"] in value]
    if not found:
        raise OSError(errno.ENOENT, "no variable holds it")
    return found


@way("secrets: what the environment was at the start")
def _() -> object:
    if OUT["secret"].encode() not in open("/proc/self/environ", "rb").read():
        raise OSError(errno.ENOENT, "it does not hold it")


def main() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for name, function in WAYS:
        if OUT["only"] and name not in OUT["only"]:
            continue
        try:
            said = f"done: {function()}"
        except OSError as problem:
            said = f"refused: {problem.strerror or problem}"
        except Exception as problem:
            said = f"refused: {type(problem).__name__}: {problem}"
        print("WAY", name, said.replace("\n", " ")[:300], sep="\t", flush=True)
    print("\x1b]0;out\x07\x1b[2J", flush=True)
    raise SystemExit("\x1b]0;out\x07 all tried")


main()
