"""SLURM's nodes: `sinfo` from outside, the environment inside an allocation (I/O).

Formats are those of sinfo(1), 22.05: %N name, %G generic resources, %m memory in MiB, %f features, %T state.
"""

import os
import re
import subprocess
from collections.abc import Mapping

from gpu_plan.planner.errors import InputError, UnreachableError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.hardware.engines.nodes import Node, spread
from gpu_plan.planner.units import MIB

NAME = "slurm"
_FORMAT = "%N|%G|%m|%f|%T"
_TIMEOUT = 30.0
# With the letters that say more of a state: * no answer, ~ # ! % power, $ maintenance, @ ^ reboot, - planned.
_GONE = re.compile(r"(?:down|drain|drained|draining|fail|failing|error|unknown|inval|perfctrs|reboot|maint)")
_GPU = re.compile(r"gpu(?::(?P<name>[^:(,=]+))?:(?P<count>\d+)(?![^,(]*[A-Za-z])")


def split(place: str) -> tuple[str, str]:
    """The partition and the devices' name of what follows `slurm:`. InputError for more than that."""
    partition, _, name = place.partition(":")
    if ":" in name:
        raise InputError(f"--gpus slurm:{place}: write slurm:PARTITION or slurm:PARTITION:h100")
    return partition, name


def nodes_of(partition: str) -> list[Node]:
    """Nodes of a partition that are not down; `partition` empty: the default one.

    UnreachableError where sinfo is not there or does not answer, InputError for a partition that is not.
    """
    text = _sinfo("--Node", *(["--partition", partition] if partition else []))
    names, nodes = set(), []
    for line in text.splitlines():
        node = parse_line(line)
        if node is not None and node.name not in names:
            names.add(node.name)
            nodes.append(node)
    if not nodes and partition and not text.strip():
        has = ", ".join(sorted({word.strip("* ") for word in _sinfo(form="%P").split()}))
        raise InputError(f"--gpus slurm:{partition}: SLURM has no such partition, or no node in it; it has {has}")
    return nodes


def parse_line(line: str) -> Node | None:
    """A line of sinfo; None for a node that is down, and for what is no line."""
    fields = line.strip().split("|")
    if len(fields) != 5 or _GONE.match(fields[4].strip().lower()):
        return None
    name, gres, memory, features, _ = (field.strip() for field in fields)
    found = [(match["name"], int(match["count"])) for match in _GPU.finditer(gres)]
    plain = tuple(word for word in features.split(",") if word and word != "(null)")
    return Node(
        name=name,
        gpu=(found[0][0] or "") if found else None,
        gpus=sum(count for kind, count in found if kind == found[0][0]),
        ram_bytes=int(memory.rstrip("+")) * MIB if memory.rstrip("+").isdigit() else None,
        features=plain,
    )


def allocation(environment: Mapping[str, str] = os.environ) -> int | None:
    """Nodes of the allocation in which this process is; None outside of one."""
    text = environment.get("SLURM_JOB_NUM_NODES") or environment.get("SLURM_NNODES") or ""
    return int(text) if environment.get("SLURM_JOB_ID") and text.isdigit() and int(text) > 0 else None


def on_a_node(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is on one of the allocation's nodes; after salloc it may be on another machine."""
    return bool(environment.get("SLURMD_NODENAME"))


def gives_gpus(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether devices of this node were given."""
    return environment.get("SLURM_GPUS_ON_NODE", "0").isdigit() and int(environment.get("SLURM_GPUS_ON_NODE", "0")) > 0


def allocated_nodes(environment: Mapping[str, str] = os.environ) -> list[Node]:
    """The allocation's nodes as sinfo has them, with the devices that were given of each."""
    given = environment.get("SLURM_GPUS_ON_NODE") or environment.get("SLURM_GPUS_PER_NODE") or ""
    count = re.search(r"(\d+)$", given)
    text = _sinfo("--Node", "--nodes", environment.get("SLURM_JOB_NODELIST", ""))
    found = {node.name: node for line in text.splitlines() if (node := parse_line(line)) is not None}
    each = int(count[1]) if count else 0
    return [
        Node(
            name=node.name, gpu=node.gpu if each else None, gpus=min(each, node.gpus) if node.gpus else 0,
            ram_bytes=node.ram_bytes, features=node.features,
        )
        for node in found.values()
    ]  # fmt: skip


def as_allocated(one: Cluster, environment: Mapping[str, str] = os.environ) -> Cluster:
    """This node's devices on each node of the allocation, with no more RAM than was given."""
    memory = environment.get("SLURM_MEM_PER_NODE", "")
    ram = int(memory) * MIB if memory.isdigit() and int(memory) else None
    return spread(one, allocation(environment) or 1, ram)


def _sinfo(*words: str, form: str = _FORMAT) -> str:
    command = ("sinfo", "--noheader", *words, "--format", form)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise UnreachableError("--gpus slurm: sinfo is not on PATH: run this where SLURM's client is") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnreachableError(f"--gpus slurm: sinfo does not answer: {error}") from None
    if done.returncode != 0:
        said = " ".join(done.stderr.split())[:300]
        raise UnreachableError(f"--gpus slurm: sinfo fails: {said or done.returncode}")
    return done.stdout
