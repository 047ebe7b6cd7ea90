"""The store in which the agents of a run meet: made by torchelastic's rendezvous, read by key (I/O).

launch/N           words, environment and directory of the N-th launch, as JSON
code/N/RANK        how it ended on that node
signal/N/K         the K-th signal for it
beat/RANK          a number that a living agent raises
sees/RANK          whether that node sees the run folder, from the same working directory
round              `over CODE` or `again`: how this round ended
interrupted        a signal that the user sent to any of them
"""

import contextlib
import json
import logging
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from gpu_plan.planner.errors import UnreachableError

PLACE = "GPU_PLAN_AGENTS"
"""In the supervisor's environment: where the store is, as JSON."""
_PATIENCE = timedelta(seconds=60)


class Keys:
    """A store whose values are texts. RuntimeError (torch's DistError among them) where it is gone."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def put(self, key: str, value: str) -> None:
        self._store.set(key, value)

    def get(self, key: str) -> str | None:
        """None for a key that is not there (yet)."""
        return str(self._store.get(key).decode()) if self._store.check([key]) else None

    def next(self, key: str) -> int:
        """How often this was asked before."""
        return int(self._store.add(key, 1)) - 1

    def beats(self, rank: int) -> str:
        return self.get(f"beat/{rank}") or ""


def handler(host: str, port: int, nodes: int, rank: int, name: str, seconds: float) -> Any:
    """torchelastic's rendezvous of so many nodes at the first of them."""
    from torch.distributed.elastic.rendezvous import RendezvousParameters
    from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

    logging.getLogger("torch.distributed.elastic").setLevel(logging.ERROR)
    with said_in_one_line(host, port):
        return get_rendezvous_handler(
            RendezvousParameters(
                backend="c10d", endpoint=f"{host}:{port}", run_id=name, min_nodes=nodes, max_nodes=nodes,
                is_host=int(rank == 0), join_timeout=int(seconds), last_call_timeout=1, read_timeout=int(seconds),
            )
        )  # fmt: skip


@contextlib.contextmanager
def said_in_one_line(host: str, port: int) -> Iterator[None]:
    """torch's errors of a rendezvous as UnreachableError."""
    from torch.distributed import DistError
    from torch.distributed.elastic.rendezvous import RendezvousError, RendezvousTimeoutError

    try:
        yield
    except RendezvousTimeoutError:  # it has no words
        raise UnreachableError(f"the hosts do not meet at {host}:{port}: not all of them came in time") from None
    except (RendezvousError, DistError, RuntimeError, OSError) as error:
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise UnreachableError(f"the hosts do not meet at {host}:{port}: {said}") from None


def connected(name: str, host: str, port: int) -> Keys:
    """The store of a round, for agents and the supervisor's launches."""
    import torch.distributed as dist

    return Keys(dist.PrefixStore(name, dist.TCPStore(host, port, is_master=False, timeout=_PATIENCE)))


def told() -> dict[str, Any]:
    """What the supervisor's environment says of its agents."""
    found: dict[str, Any] = json.loads(os.environ[PLACE])
    return found
