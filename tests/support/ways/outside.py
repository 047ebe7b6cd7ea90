"""What a captured script could reach, how it was and how it is afterwards."""

import contextlib
import ctypes
import fcntl
import hashlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from gpu_plan.planner.capture import parent
from gpu_plan.planner.capture.request import CaptureRequest, Outcome, PlannedDevice

INSIDE = Path(__file__).with_name("inside")
DEVICES = (
    "/dev/tty", "/dev/console", "/dev/mem", "/dev/kmsg", "/dev/kvm", "/dev/fuse", "/dev/loop-control", "/dev/vsock",
    "/dev/watchdog", "/dev/userfaultfd", "/dev/net/tun", "/dev/vda", "/dev/sda", "/dev/nvme0n1",
)  # fmt: skip
SOCKETS = (
    "/run/docker.sock", "/run/containerd/containerd.sock", "/run/dbus/system_bus_socket", "/run/systemd/notify",
    "/run/systemd/journal/stdout", "/tmp/.X11-unix/X0",
)  # fmt: skip
MOST = 1 << 26
_VICTIM = """
import ctypes, os, resource, sys
held = ctypes.create_string_buffer(b"untouched")
print(ctypes.addressof(held), flush=True)
for _ in sys.stdin:
    state = (held.value, os.getpriority(os.PRIO_PROCESS, 0), resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 8,
             len(os.sched_getaffinity(0)), os.sched_getscheduler(0), open("/proc/self/oom_score_adj").read())
    print(state, flush=True)
"""
Verdict = Literal["stopped", "went nowhere", "OUT"]


@dataclass(frozen=True, slots=True)
class Tried:
    """One way."""

    way: str
    inside: str
    """What the script saw."""
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """All of them, in one capture."""

    tried: tuple[Tried, ...]
    outcome: Outcome
    changed: tuple[str, ...]
    """What is not as it was; empty where the walls held."""


_SEEN = {
    "files": ("files", "places", "locks"),
    "network": ("heard",),
    "processes": ("victim", "left"),
    "kernel: shared memory": ("shared",),
    "kernel: semaphores": ("semaphore",),
    "kernel: message queues of POSIX": ("queue",),
    "kernel: the host's name": ("host",),
}
"""Where a way that the script thinks it found would be seen; any other is out as soon as the script thinks so."""


class Outside:
    """Canaries of every kind, in place while the object is open."""

    def __init__(self, stack: contextlib.ExitStack, disk: Path) -> None:
        self.id, self.secret = f"plan-ways-{uuid.uuid4().hex[:12]}", f"hf_{uuid.uuid4().hex}"
        self.data = disk / "data"
        self._stack, self._locked = stack, False
        self._heard: list[str] = []
        self._fill()
        self._listen(disk)
        self._share()
        self.victim = stack.enter_context(
            subprocess.Popen([sys.executable, "-c", _VICTIM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        stack.callback(self.victim.kill)
        assert self.victim.stdout is not None
        self.address = int(self.victim.stdout.readline())
        self._before = self.state()

    def described(self, only: tuple[str, ...]) -> dict[str, object]:
        """What the script is told; it tries the ways of `only`, or all."""
        return {
            "only": only,
            "data": str(self.data),
            "victim": self.victim.pid,
            "address": self.address,
            "places": [{"called": called, "path": str(path)} for called, path in self._places().items()],
            "devices": [device for device in DEVICES if os.path.exists(device)],
            "disk": self._disk(),
            "tcp": self._tcp,
            "tcp6": self._tcp6,
            "udp": self._udp,
            "unix": self._unix,
            "abstract": self.id,
            "datagram": self._datagram,
            "sockets": [path for path in SOCKETS if os.path.exists(path)],
            "shared": self._key,
            "secret": self.secret,
            "most": MOST,
        }

    def state(self) -> dict[str, object]:
        """Everything that could have been changed."""
        semaphore = self._libc.semctl(self._semaphore, 0, 12)
        return {
            "files": _digest(self.data),
            "places": [str(path) for path in self._places().values() if path.exists() or path.is_symlink()],
            "locks": self._locked,
            "heard": list(self._heard),
            "victim": self._ask(),
            "left": self._left(),
            "shared": bytes(self._view[:9]),
            "semaphore": semaphore,
            "queue": self._libc.mq_open(f"/{self.id}".encode(), os.O_RDONLY) >= 0,
            "host": socket.gethostname(),
        }

    def changed(self) -> tuple[str, ...]:
        """Names of what is not as it was."""
        for _ in range(100):  # what is ended may take a moment to go
            if not self._left():
                break
            time.sleep(0.1)
        now = self.state()
        return tuple(name for name, value in now.items() if value != self._before[name])

    def _fill(self) -> None:
        (self.data / "empty").mkdir(parents=True)
        for name in ("keep.txt", "keep2.txt", "gone.txt", "program"):
            (self.data / name).write_text(f"{name} as it was")
            (self.data / name).chmod(0o640)
        thread = threading.Thread(target=self._try_lock, daemon=True)
        self._done = threading.Event()
        self._stack.callback(thread.join)
        self._stack.callback(self._done.set)
        thread.start()

    def _try_lock(self) -> None:
        with open(self.data / "keep.txt", "rb") as file:
            while not self._done.wait(0.05):
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    fcntl.flock(file, fcntl.LOCK_UN)
                except BlockingIOError:
                    self._locked = True

    def _places(self) -> dict[str, Path]:
        found = {
            "home": Path.home() / self.id,
            "the root": Path("/") / self.id,
            "/etc/cron.d": Path("/etc/cron.d") / self.id,
            "/var/spool/cron": Path("/var/spool/cron") / self.id,
            "/etc/profile.d": Path("/etc/profile.d") / f"{self.id}.sh",
            "/usr/local/bin": Path("/usr/local/bin") / self.id,
            "/tmp": Path("/tmp") / self.id,
            "/var/tmp": Path("/var/tmp") / self.id,
            "/dev/shm": Path("/dev/shm") / self.id,
            "/run": Path("/run") / self.id,
            "the interpreter's packages": Path(os.__file__).parent / "site-packages" / f"{self.id}.pth",
        }
        return {called: path for called, path in found.items() if path.parent.is_dir()}

    def _disk(self) -> tuple[int, int]:
        device = os.stat("/").st_dev
        return os.major(device), os.minor(device)

    def _listen(self, disk: Path) -> None:
        self._tcp = self._accept(socket.AF_INET, ("127.0.0.1", 0))
        try:
            self._tcp6 = self._accept(socket.AF_INET6, ("::1", 0))
        except OSError:
            self._tcp6 = 0
        self._unix, self._datagram = str(disk / "socket"), str(disk / "datagram")
        self._accept(socket.AF_UNIX, self._unix)
        self._accept(socket.AF_UNIX, "\0" + self.id)
        self._receive(socket.AF_UNIX, self._datagram)
        self._udp = self._receive(socket.AF_INET, ("127.0.0.1", 0))

    def _accept(self, family: int, address: object) -> int:
        made = self._stack.enter_context(socket.socket(family))
        made.bind(address)
        made.listen()

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    made.accept()[0].close()
                    self._heard.append(str(address))

        return self._serve(made, accept)

    def _receive(self, family: int, address: object) -> int:
        made = self._stack.enter_context(socket.socket(family, socket.SOCK_DGRAM))
        made.bind(address)

        def receive() -> None:
            with contextlib.suppress(OSError):
                while made.recv(64):
                    self._heard.append(str(address))

        return self._serve(made, receive)

    def _serve(self, made: socket.socket, target: object) -> int:
        thread = threading.Thread(target=target, daemon=True)  # type: ignore[arg-type]
        self._stack.callback(thread.join, 5)
        self._stack.callback(_shut, made)
        thread.start()
        name = made.getsockname()
        return int(name[1]) if isinstance(name, tuple) else 0

    def _share(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.shmat.restype = ctypes.c_void_p
        self._key = int(self.id[-7:], 16)
        number = self._libc.shmget(self._key, 4096, 0o1600)
        self._semaphore = self._libc.semget(self._key, 1, 0o1600)
        queue = self._libc.msgget(self._key, 0o1600)
        self._stack.callback(self._libc.shmctl, number, 0, None)
        self._stack.callback(self._libc.semctl, self._semaphore, 0, 0)
        self._stack.callback(self._libc.msgctl, queue, 0, None)
        place = self._libc.shmat(number, None, 0)
        self._view = (ctypes.c_char * 4096).from_address(place)
        self._view[:9] = b"untouched"

    def _ask(self) -> str:
        if self.victim.poll() is not None:
            return "ended"
        assert self.victim.stdin is not None
        assert self.victim.stdout is not None
        self.victim.stdin.write("\n")
        self.victim.stdin.flush()
        return self.victim.stdout.readline()

    def _left(self) -> list[str]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if b"PLAN_WAYS=" + self.id.encode() in (entry / "environ").read_bytes():
                        found.append(entry.name)
        return found


@contextlib.contextmanager
def outside(disk: Path) -> Iterator[Outside]:
    """Canaries in the folder `disk`, which should be a mount of its own, and everywhere else."""
    with contextlib.ExitStack() as stack:
        yield Outside(stack, disk)


def attempt(disk: Path, *only: str, unwalled: bool = False) -> Attempt:
    """Captures the script that tries all ways, or those of `only`, to change what is put into the folder `disk`."""
    folder = Path(tempfile.mkdtemp(prefix="plan-ways-"))
    try:
        with outside(disk) as there:
            script = shutil.copytree(INSIDE, folder / "inside") / "script.py"
            (folder / "there.json").write_text(json.dumps(there.described(only)))
            before = {name: os.environ.get(name) for name in ("HF_TOKEN", "PLAN_WAYS")}
            os.environ.update(HF_TOKEN=there.secret, PLAN_WAYS=there.id)
            try:
                outcome, _, said = parent._run(
                    replace(request(script, str(folder / "there.json")), unwalled=unwalled), lambda _: None
                )
            finally:
                for name, value in before.items():
                    os.environ.pop(name, None)
                    if value is not None:
                        os.environ[name] = value
            changed = there.changed()
        lines = [line.split("\t") for line in said.splitlines() if line.startswith("WAY\t")]
        tried = tuple(Tried(way, inside, _verdict(way, inside, changed)) for _, way, inside in lines)
        return Attempt(tried=tried, outcome=outcome, changed=changed)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def request(script: Path, *arguments: str) -> CaptureRequest:
    """A capture that has time."""
    device = PlannedDevice(name="NVIDIA T4", total_bytes=16 * 10**9, capability_major=7, sm_count=40)
    asked = CaptureRequest(script=str(script), working_directory=str(script.parent), device=device)
    return replace(asked, arguments=arguments, seconds=1200.0, written_bytes=MOST)


def _verdict(way: str, inside: str, changed: tuple[str, ...]) -> Verdict:
    if inside.startswith("refused"):
        return "stopped"
    for start, seen in _SEEN.items():
        if way.startswith(start):
            return "OUT" if set(seen) & set(changed) else "went nowhere"
    return "OUT"


def _digest(folder: Path) -> str:
    found = hashlib.sha256()
    for place, folders, names in os.walk(folder):
        for name in sorted((*folders, *names)):
            path = os.path.join(place, name)
            told = os.lstat(path)
            times = (told.st_mtime_ns, told.st_uid, told.st_gid, told.st_mode, told.st_nlink)
            content = Path(path).read_bytes() if stat.S_ISREG(told.st_mode) else b""
            found.update(repr((path, times, content, os.listxattr(path, follow_symlinks=False))).encode())
        folders.sort()
    return found.hexdigest()


def _shut(made: socket.socket) -> None:
    with contextlib.suppress(OSError):
        made.shutdown(socket.SHUT_RDWR)
    made.close()
