"""Which job of which engine a run is: `engine/engine.json`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineJob:
    """A run's place at the engine that was given it."""

    engine: str
    """As `--on` takes it."""
    job: str
    """The engine's own number or name of it."""
    where: str = ""
    """What else tells where it is: an address, a namespace."""
