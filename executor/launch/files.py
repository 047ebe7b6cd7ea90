"""What applies a plan: files, environment and words, as one value; made without I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFiles:
    """One engine's way to launch one plan."""

    engine: str
    """`accelerate`, `deepspeed`, `torchrun`."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Content by file name, or by a path below the one folder into which they are written."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables to add to the environment of the launcher."""
    command: tuple[str, ...] = ()
    """Words of the launch command, script and its arguments included; file names of `files` as in `folder`."""
    notes: tuple[str, ...] = ()
    """What is done in a way that people should know of, one line each: said before the launch."""
    not_applied: tuple[str, ...] = ()
    """What of the plan cannot be applied this way, one line each: said before the launch."""
