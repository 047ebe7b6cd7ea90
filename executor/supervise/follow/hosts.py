"""Which hosts have come to the rendezvous, by the connections to it (I/O).

torch's agents meet at a TCP store on the first host, and start no rank before all have come. The store itself tells
nobody who is missing; the kernel's table of connections does. Linux; elsewhere nobody but this host is known of.
"""

import contextlib
import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

DEFAULT_PORT = 29500
"""torchrun's and accelerate's own, where none is given."""
_ESTABLISHED = "01"
_TABLES = ("tcp", "tcp6")


@dataclass(frozen=True, slots=True)
class Connection:
    """A line of /proc/net/tcp that is established."""

    local: str
    local_port: int
    remote: str
    remote_port: int
    inode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """The rendezvous of several hosts, as one of them sees it."""

    hosts: tuple[str, ...]
    port: int
    here: int
    """Which of `hosts` this one is; the store is on the first."""

    def joined(self, own: Iterable[int]) -> int:
        """How many hosts are known to have come, this one included. `own`: this host's processes of the run."""
        return hosts_seen(established(self.port), sockets_of(own), self.port, head=self.here == 0)

    def words(self, joined: int) -> str:
        """`waiting for 1 of 2 hosts at node-a:29500: node-b has not come`."""
        missing = max(1, len(self.hosts) - joined)
        others = [host for number, host in enumerate(self.hosts) if number != self.here]
        known = self.here == 0 or joined < 2
        who = others if self.here == 0 else self.hosts[:1]
        names = f": {', '.join(who[:4])}" if known and (self.here > 0 or missing == len(others)) else ""
        most = "at most " if self.here > 0 and joined > 1 and len(self.hosts) > 2 else ""  # the first alone sees more
        return f"waiting for {most}{missing} of {len(self.hosts)} hosts at {self.hosts[0]}:{self.port}{names}"


def meeting_of(hosts: Sequence[str], here: int) -> Meeting | None:
    """The meeting of `hosts` as `--hosts` names them, the first perhaps with a port; None for fewer than two."""
    if len(hosts) < 2:
        return None
    head, _, port = hosts[0].partition(":")
    number = int(port) if port.isascii() and port.isdigit() else DEFAULT_PORT
    return Meeting(hosts=(head, *hosts[1:]), port=number, here=here)


def free_port() -> int:
    """A port of this host at which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def hosts_seen(found: Sequence[Connection], own: frozenset[str], port: int, *, head: bool) -> int:
    """From the connections that touch the rendezvous and the sockets that are our own. Pure.

    On the first host each other host's agent is a connection to the port from an end that is not ours; elsewhere all
    that is seen is whether our own agent has reached the first host.
    """
    ours = {(one.local, one.local_port) for one in found if one.inode in own}
    if not head:
        return 2 if any(one.inode in own and one.remote_port == port for one in found) else 1
    foreign = {one.remote for one in found if one.local_port == port and (one.remote, one.remote_port) not in ours}
    return 1 + len(foreign)


def established(port: int, root: Path = Path("/proc/net")) -> list[Connection]:
    """Established connections one of whose ends is `port`."""
    found = []
    for name in _TABLES:
        with contextlib.suppress(OSError):
            for line in (root / name).read_text().splitlines()[1:]:
                words = line.split()
                if len(words) > 9 and words[3] == _ESTABLISHED:
                    local, _, own = words[1].rpartition(":")
                    remote, _, other = words[2].rpartition(":")
                    one = Connection(local, int(own, 16), remote, int(other, 16), words[9])
                    if port in (one.local_port, one.remote_port):
                        found.append(one)
    return found


def sockets_of(pids: Iterable[int]) -> frozenset[str]:
    """Inodes of the sockets that the processes hold."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    target = os.readlink(entry.path)
                    if target.startswith("socket:["):
                        found.add(target[8:-1])
    return frozenset(found)
