"""How many ranks compute one copy of the model together, and how many share its parts out."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

VARIABLE = "GPU_PLAN_DEGREES"
"""JSON object with the fields of `Degrees`; unset where no rank shares a copy with another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """Fields of transformers 5.23 distributed/configuration_utils.py: DistributedConfig, under their names there."""

    tp_size: int = 1
    fsdp_size: int = 1
    dp_replicate_size: int = 1
    ep_size: int = 1
    fsdp_mixed_precision: bool = False

    @property
    def data_parallel(self) -> int:
        """Groups of ranks that see samples of their own."""
        return self.fsdp_size * self.dp_replicate_size

    @property
    def world_size(self) -> int:
        return self.data_parallel * self.tp_size

    def group_of(self, rank: int) -> int:
        """Which of the groups a rank is in: ranks are numbered (replicate, fsdp, tp), the last one fastest
        (distributed/utils.py: initialize_distributed_mesh)."""
        return rank // self.tp_size

    def fields(self) -> dict[str, object]:
        """Arguments of a DistributedConfig."""
        return asdict(self)


def read_degrees(environment: Mapping[str, str] | None = None) -> Degrees | None:
    """What the launching process says; None where it says nothing. ValueError for anything else than it writes."""
    given = told(VARIABLE, environment)
    return None if given is None else Degrees(**given)


def told(variable: str, environment: Mapping[str, str] | None = None) -> dict[str, Any] | None:
    """The JSON object of a variable of the launching process; None where it is not set, ValueError where it is none."""
    text = (os.environ if environment is None else environment).get(variable)
    if not text:
        return None
    given = json.loads(text)
    if not isinstance(given, dict):
        raise ValueError(f"{variable} is no JSON object")
    return given
