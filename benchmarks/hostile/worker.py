"""Runs one case and says what it did that it must not do.

`forked` runs the command in a fork of this process, which has imported what costs seconds; `started` as a process of
its own, in a folder that also holds modules by the names of all that a start imports. Nothing is judged by a clock but
a hang: minutes of processor time, or minutes without any, so that a busy machine makes none.
"""

import atexit
import contextlib
import os
import pkgutil
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil

from benchmarks.hostile.case import CANARY, Case, lay_down, listed

CODES = frozenset({0, 1, 2, 3, 4})
"""Documented ends of what is neither interrupted nor launched; 70 is an internal error."""
HANG_SECONDS = 300.0
_LOOKS = 200
"""Between two looks at the processor time used: about a second."""
MOST_BYTES = 4 * 2**30
PLANTED = (
    "torch", "transformers", "numpy", "yaml", "json", "tempfile", "typing", "enum", "dataclasses", "argparse", "rich",
    "planner", "executor", "reports", "tui", "encodings", "os", "site", "sitecustomize", "usercustomize", "tomllib",
    "pickle", "psutil", "scipy", "huggingface_hub", "unicodedata", "resource", "errno",
)  # fmt: skip
_OWN = (
    "nvidia-smi",
    "rocm-smi",
    "hl-smi",
    "uname",
    "git",
    "lscpu",
    "ldconfig",
    "gcc",
    "cc",
    "sh",
    "hostname",
    "fc-list",
)
_LIBRARIES = (".cache/matplotlib", ".config/matplotlib", "torchinductor_")
"""Where matplotlib keeps which fonts there are, and the empty folder that importing inductor makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run did."""

    name: str
    words: tuple[str, ...]
    code: int | None
    """None where it did not end."""
    faults: tuple[str, ...]
    peak_bytes: int
    seconds: float
    said: str
    """The first of stderr."""


def prepare() -> None:
    """Imports, once, what the forks share."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    import gpu_plan

    torch.set_num_threads(1)
    for name in ("transformers.models.llama.modeling_llama", "matplotlib.pyplot", "pandas", "yaml", "rich.console"):
        import_module(name)
    for room in ("commands", "planner", "executor", "reports"):
        for found in pkgutil.walk_packages([f"{gpu_plan.__path__[0]}/{room}"], f"gpu_plan.{room}."):
            if not any(part in found.name for part in ("__main__", ".capture", ".runner", ".pytest_plugin")):
                with contextlib.suppress(Exception):  # what is not installed
                    import_module(found.name)


def forked(case: Case) -> Result:
    """In a fork of this process."""
    return _judged(case, planted=False, run=_fork)


def started(case: Case) -> Result:
    """As a process of its own, among planted modules."""
    return _judged(case, planted=True, run=_process)


Run = Callable[[Case, Path, dict[str, str]], tuple[int | None, int]]


def _judged(case: Case, *, planted: bool, run: Run) -> Result:
    root = Path(tempfile.mkdtemp(prefix="hostile-"))
    try:
        for name in ("case", "home", "temporary", "said"):
            (root / name).mkdir()
        if planted:
            for name in PLANTED:
                (root / "case" / f"{name}.py").write_text(f"open({str(root / 'case' / CANARY)!r}, 'w')\n")
        lay_down(case, root / "case")
        before = {name: listed(root / name) for name in ("case", "home", "temporary")}
        began = time.monotonic()
        code, peak = run(case, root, _environment(root))
        seconds = time.monotonic() - began
        out, err = ((root / "said" / name).read_bytes().decode("utf-8", "replace") for name in ("out", "err"))
        faults = [*_of_output(code, out, err), *_of_audit(root / "said" / "audit")]
        for name, entries in before.items():
            faults += [f"{name}: {entry} was written" for entry in sorted(_changed(entries, listed(root / name)))]
        if peak > MOST_BYTES:
            faults.append(f"over 4 GiB: {peak / 2**30:.1f}")
        said = err.strip()[:300]
        return Result(
            name=case.name,
            words=case.words,
            code=code,
            faults=tuple(faults),
            peak_bytes=peak,
            seconds=seconds,
            said=said,
        )
    finally:
        shutil.rmtree(root, ignore_errors=True)


@cache
def _cache() -> Path:
    """One for all cases of this process, as it is one for all runs of a user."""
    folder = Path(tempfile.mkdtemp(prefix="hostile-cache-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _environment(root: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "VIRTUAL_ENV") if name in os.environ}
    return {
        **kept,
        "HOME": str(root / "home"),
        "TMPDIR": str(root / "temporary"),
        "GPU_PLAN_CACHE": str(_cache()),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _fork(case: Case, root: Path, environment: dict[str, str]) -> tuple[int | None, int]:
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process == 0:
        _child(case, root, environment)
    return _waited(process)


def _child(case: Case, root: Path, environment: dict[str, str]) -> None:
    """Never returns."""
    code = 99
    try:
        os.setsid()
        os.chdir(root / "case")
        os.environ.clear()
        os.environ.update(environment)
        tempfile.tempdir = None
        for number, name in ((0, os.devnull), (1, root / "said" / "out"), (2, root / "said" / "err")):
            opened = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
            os.dup2(opened, number)
        sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
        sys.stderr = open(2, "w", errors="backslashreplace")  # noqa: SIM115
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + 6 * 2**30, resource.RLIM_INFINITY))
        sys.path[:] = [entry for entry in sys.path if entry not in ("", os.getcwd())]
        sys.argv = ["plan", *case.words]
        sys.addaudithook(_auditor(root / "case", root / "said" / "audit"))
        from gpu_plan.cli import entry

        entry()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 98
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                code = 97
        os._exit(code)


def _process(case: Case, root: Path, environment: dict[str, str]) -> tuple[int | None, int]:
    with open(root / "said" / "out", "wb") as out, open(root / "said" / "err", "wb") as err:
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name("plan")), *case.words],
            cwd=root / "case", env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            start_new_session=True, preexec_fn=_bounded,
        )  # fmt: skip
    code, peak = _waited(process.pid)
    process.returncode = code
    return code, peak


def _bounded() -> None:
    """The machine has other work: what takes 16 GiB is found out before it has them all."""
    resource.setrlimit(resource.RLIMIT_AS, (16 * 2**30, resource.RLIM_INFINITY))


def _waited(process: int) -> tuple[int | None, int]:
    """Exit code, None after a hang, and the largest resident size of it and its children."""
    used, idle_since, look = 0.0, time.monotonic(), 0
    while True:
        done, status, usage = os.wait4(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024
        look += 1
        if look % _LOOKS == 0 and (now := _processor_seconds(process)) > used + 0.01:
            used, idle_since = now, time.monotonic()
        if used > HANG_SECONDS or time.monotonic() - idle_since > HANG_SECONDS:
            os.killpg(process, signal.SIGKILL)
            _, _, usage = os.wait4(process, 0)
            return None, usage.ru_maxrss * 1024
        time.sleep(0.005)


def _processor_seconds(process: int) -> float:
    """What it and the processes that it started have used so far; those that ended and were not waited for are not."""
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(process)
        times = [one.cpu_times() for one in (root, *root.children(recursive=True))]
        return float(sum(t.user + t.system + t.children_user + t.children_system for t in times))
    return 0.0


def _auditor(folder: Path, target: Path) -> Callable[[str, tuple[Any, ...]], None]:
    """Notes programs that are started, and code that runs and lies in the case's folder."""
    here = str(folder)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "exec":
            said = str(getattr(args[0], "co_filename", ""))
            if not said.startswith(here):
                return
        elif event == "subprocess.Popen":
            words = [str(word) for word in (args[1] or ())] if not isinstance(args[1], str) else [args[1]]
            said = " ".join([str(args[0]), *words])
            if os.path.basename(str(args[0])) in _OWN or str(args[0]) == sys.executable:
                return
        elif event in ("os.system", "os.exec", "os.posix_spawn", "pty.spawn"):
            said = str(args)
        else:
            return
        os.write(descriptor, f"{event}: {said[:200]!r}\n".encode("utf-8", "replace"))

    return hook


def _of_audit(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    return [f"code run: {line}" for line in lines]


def _of_output(code: int | None, out: str, err: str) -> list[str]:
    faults = []
    if code is None:
        faults.append("hang")
    elif code not in CODES:
        faults.append(f"exit code {code}")
    if "Traceback (most recent" in out + err or "internal error" in err:
        faults.append("traceback")
    errors = [line for line in err.splitlines() if line.startswith("plan: error")]
    if code in (2, 3, 4) and len(errors) != 1 and not out:
        faults.append(f"{len(errors)} lines of error")
    steering = {character for character in out + err if not (character.isprintable() or character in "\n\ufffd")}
    if steering:
        faults.append(f"shown raw: {sorted(steering)!a}")
    return faults


def _changed(before: dict[str, tuple[int, int, int]], after: dict[str, tuple[int, int, int]]) -> Sequence[str]:
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    return [name for name in changed if name not in (".cache", ".config") and not name.startswith(_LIBRARIES)]
