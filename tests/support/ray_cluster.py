"""A Ray of its own on this machine: several `ray start`, with a dashboard for its job client, ended with the test.

Whatever has the cluster's folder among its words is ended, and nothing else.
"""

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

_SECONDS = 300


def missing() -> str:
    """Why no Ray can be started here; empty where one can."""
    for name in ("ray", "aiohttp_cors"):
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed: pip install 'ray[default,train]'"
    return ""


@dataclass(kw_only=True)
class RayCluster:
    """Nodes at work. Node 0 is the head."""

    folder: Path
    port: int
    dashboard: int
    nodes: dict[str, list[psutil.Process]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Of the cluster, for drivers."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """Of the dashboard, for the job client."""
        return f"http://127.0.0.1:{self.dashboard}"

    def start(self, *words: str) -> None:
        """One `ray start`."""
        before = {process.pid for process in self.processes()}
        command = (sys.executable, "-m", "ray.scripts.scripts", "start", "--num-cpus", "2", "--disable-usage-stats")
        more = ("--object-store-memory", "100000000", "--node-ip-address", "127.0.0.1")
        inherited = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        subprocess.run(
            (*command, *more, *words), env=inherited, check=True, capture_output=True, timeout=_SECONDS
        )  # fmt: skip
        self.nodes[f"n{len(self.nodes)}"] = [one for one in self.processes() if one.pid not in before]

    def head(self) -> None:
        """The first node."""
        own = ("--port", str(self.port), "--dashboard-port", str(self.dashboard), "--include-dashboard", "true")
        self.start("--head", *own, "--temp-dir", str(self.folder))

    def join(self) -> None:
        """Another node."""
        self.start("--address", self.address)

    def lose(self, name: str) -> None:
        """Kills a node: its raylet and everything below it, as a power cut would."""
        dead = []
        for process in self.nodes.pop(name):
            with contextlib.suppress(psutil.Error):
                dead += [process, *process.children(recursive=True)]
        for process in dead:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)

    def processes(self) -> list[psutil.Process]:
        """All of this cluster."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            if any(str(self.folder) in word for word in process.info["cmdline"] or ()):
                found.append(process)
        return found

    def end(self) -> None:
        """Ends all of it."""
        for _ in range(3):
            for process in self.processes():
                with contextlib.suppress(psutil.Error):
                    for one in (*process.children(recursive=True), process):
                        one.send_signal(signal.SIGKILL)
            time.sleep(0.5)


@contextlib.contextmanager
def ray_cluster(nodes: int = 2) -> Iterator[RayCluster]:
    """A cluster of so many nodes, ended behind the block."""
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    port, dashboard = _free_ports(2)
    made = RayCluster(folder=folder, port=port, dashboard=dashboard)
    try:
        made.head()
        for _ in range(nodes - 1):
            made.join()
        _await_dashboard(made)
        yield made
    finally:
        made.end()
        shutil.rmtree(folder, ignore_errors=True)


def _await_dashboard(made: RayCluster) -> None:
    import urllib.request

    until = time.monotonic() + _SECONDS
    while time.monotonic() < until:
        with contextlib.suppress(OSError, ValueError):
            with urllib.request.urlopen(f"{made.url}/api/version", timeout=10) as answer:
                json.load(answer)
            return
        time.sleep(0.5)
    raise AssertionError(f"Ray's dashboard does not answer at {made.url}")


def _free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in held]
    finally:
        for one in held:
            one.close()
