"""The walls' parts that are functions of values: the filter as a kernel would run it, the list of mounts, the words."""

import errno
import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_plan.planner.walls.environment import HIDDEN, without_secrets
from gpu_plan.planner.walls.filter import ALLOW, Condition, Instruction, Rule, assemble, packed
from gpu_plan.planner.walls.kernel import AUDIT_ARCHITECTURE, LAST, numbers
from gpu_plan.planner.walls.mounts import below, read_mounts
from gpu_plan.planner.walls.system_calls import Openings, rules

X86, ARM = AUDIT_ARCHITECTURE["x86_64"], AUDIT_ARCHITECTURE["aarch64"]
KILLED = 0x80000000
WALLS = {
    "namespaces": Openings(namespaces=True, local_sockets=True),
    "over what can only be read": Openings(namespaces=True),
    "landlock": Openings(namespaces=False, own_signals=True),
    "old landlock": Openings(namespaces=False, truncation=False),
}


def run(program: Sequence[Instruction], number: int, *arguments: int, architecture: int = X86) -> int:
    """What the program returns: the machine of Linux's kernel/seccomp.c, by its documented instructions."""
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, architecture, 0, *(*arguments, *[0] * 6)[:6])
    at, value = 0, 0
    while True:
        code, yes, no, k = program[at]
        at += 1
        if code == 0x20:
            (value,) = struct.unpack_from("<I", data, k)
        elif code == 0x54:
            value &= k
        elif code == 0x15:
            at += yes if value == k else no
        elif code == 0x25:
            at += yes if value > k else no
        else:
            assert code == 0x06
            return k


def program_of(openings: Openings, machine: str = "x86_64", process: int = 77) -> list[Instruction]:
    return assemble(
        rules(openings, process),
        numbers(machine),
        architecture=AUDIT_ARCHITECTURE[machine],
        last=LAST,
        unknown=errno.ENOSYS,
    )


def answer(openings: Openings, call: str, *arguments: int, machine: str = "x86_64") -> int | None:
    """The error that a call fails with, 0 for one that does nothing; None where it is let through."""
    known = numbers(machine)
    found = run(program_of(openings, machine), known[call], *arguments, architecture=AUDIT_ARCHITECTURE[machine])
    return None if found == ALLOW else found & 0xFFFF


@pytest.mark.parametrize("openings", WALLS.values(), ids=WALLS)
@pytest.mark.parametrize("machine", AUDIT_ARCHITECTURE)
def test_what_no_wall_lets_through(openings: Openings, machine: str) -> None:
    for call in ("ptrace", "mount", "setns", "bpf", "keyctl", "reboot", "open_by_handle_at", "pidfd_getfd"):
        assert answer(openings, call, machine=machine) == errno.EPERM
    assert answer(openings, "io_uring_setup", machine=machine) == errno.ENOSYS
    assert answer(openings, "clone", 0x10000000, machine=machine) == errno.EPERM
    assert answer(openings, "clone", 0x003D0F00, machine=machine) is None, "a thread"
    assert answer(openings, "ioctl", 0, 0x5412, machine=machine) == errno.ENOTTY, "TIOCSTI"
    assert answer(openings, "ioctl", 0, 0x5413, machine=machine) is None, "TIOCGWINSZ"
    assert answer(openings, "socket", 16, machine=machine) == errno.EACCES, "netlink"
    assert answer(openings, "mknodat", 0, 0, 0o060600, machine=machine) == errno.EPERM, "a block device"
    assert answer(openings, "mknodat", 0, 0, 0o010600, machine=machine) is None, "a pipe"


def test_another_architectures_calls_end_the_process() -> None:
    program = program_of(WALLS["namespaces"])
    assert run(program, 1, architecture=0x40000003) == KILLED
    assert run(program, 1, architecture=ARM) == KILLED
    assert run(program, 0x40000000 | 1) & 0xFFFF == errno.ENOSYS, "x32"
    assert run(program, LAST + 1) & 0xFFFF == errno.ENOSYS
    assert run(program, 1) == ALLOW, "write"


def test_sockets_that_reach_nobody() -> None:
    """Without namespaces only connected pairs; a pair of datagram sockets could send to a path."""
    assert answer(WALLS["namespaces"], "socket", 2) is None
    assert answer(WALLS["over what can only be read"], "socket", 1) == errno.EACCES
    for name in ("over what can only be read", "landlock"):
        assert answer(WALLS[name], "socketpair", 1, 1 | 0o2000000) is None
        assert answer(WALLS[name], "socketpair", 1, 2) == errno.EACCES
    assert answer(WALLS["landlock"], "socket", 1) == errno.EACCES


def test_what_landlock_does_not_govern() -> None:
    wall = WALLS["old landlock"]
    assert answer(wall, "fchmod") == 0
    assert answer(wall, "setxattr") == errno.EOPNOTSUPP
    assert answer(wall, "openat", 0, 0, 0o1000) == errno.EACCES, "cut short through a descriptor for reading"
    assert answer(wall, "openat", 0, 0, 3) == errno.EACCES
    assert answer(wall, "openat", 0, 0, 0o1000 | 0o101) is None, "governed by Landlock: a write"
    assert answer(wall, "kill", 77, 15) is None
    assert answer(wall, "kill", 1, 15) == errno.EPERM
    assert answer(wall, "kill", 0xFFFFFFFF, 9) == errno.EPERM
    assert answer(wall, "prlimit64", 1) == errno.EPERM
    assert answer(wall, "fcntl", 3, 7) == 0, "a lock that others would wait for"
    assert answer(wall, "fcntl", 3, 3) is None


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=6, unique=True), st.integers(0, 2**32 - 1))
def test_a_test_lets_through_what_it_names(values: list[int], value: int) -> None:
    for negated in (False, True):
        rule = Rule("x", 13, (Condition(2, tuple(values), negated=negated),))
        program = assemble([rule], {"x": 9}, architecture=X86, last=450, unknown=38)
        for tried in (value, *values):
            passes = (tried in values) != negated
            assert (run(program, 9, 0, 0, tried) == ALLOW) is passes
        assert run(program, 8, 0, 0, value) == ALLOW


def test_the_program_is_what_the_kernel_takes() -> None:
    program = program_of(WALLS["old landlock"])
    assert len(packed(program)) == 8 * len(program)
    assert len(program) < 4096


MOUNTS = rb"""27 1 254:0 / / rw - ext4 /dev/vda rw
22 27 0:21 / /proc rw - proc proc rw
30 27 0:30 / /data/my\040disk\134 rw,relatime shared:1 - xfs /dev/sdb rw
31 27 0:31 / /data/my\040disk\134/in rw - nfs4 host:/x rw
32 27 0:32 / /data rw - autofs systemd-1 rw
33 27 0:33 / /data rw - ext4 /dev/sdc rw
34 27 0:34 / /data-2 rw - tmpfs none rw
half a line
"""


def test_the_list_of_mounts() -> None:
    mounts = read_mounts(MOUNTS)
    places = [mount.place for mount in mounts]
    assert places == [b"/", b"/data", b"/data/my disk\\", b"/data/my disk\\/in", b"/data-2", b"/proc"]
    assert mounts[1].kind == "ext4", "the one on top"
    assert [mount.place for mount in below(mounts, b"/data")] == [b"/data/my disk\\", b"/data/my disk\\/in"]
    assert len(below(mounts, b"/")) == 5


def test_secrets_by_their_names() -> None:
    secret = ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "DB_PASSWORD", "OPENAI_APIKEY", "token")
    plain = ("TOKENIZERS_PARALLELISM", "MAX_TOKENS", "PATH", "PYTHONPATH", "HF_HOME", "AUTHOR")
    given = {name: "x" for name in (*secret, *plain, "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS")}
    assert without_secrets(given) == {name: HIDDEN for name in secret} | {name: "x" for name in plain}
