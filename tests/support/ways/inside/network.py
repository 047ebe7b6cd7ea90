"""Ways of the network."""

import errno
import socket

from tools import OUT, way


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
