"""Puts this process behind the best walls that the machine offers, and says which (I/O)."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gpu_plan.planner.walls import landlock, namespaces, privileges, system_calls
from gpu_plan.planner.walls.kernel import NoWallError
from gpu_plan.planner.walls.processes import warden
from gpu_plan.planner.walls.system_calls import Openings

Kind = Literal["namespaces", "landlock", "none"]
WALLS: tuple[Kind, ...] = ("namespaces", "landlock")
"""Best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the walls must hold."""

    scratch: str
    """An empty folder, for what is written where nothing can be redirected."""
    descriptors: tuple[int, ...] = ()
    """Left open behind the walls, beside the standard ones."""
    bounds: privileges.Bounds
    room: namespaces.Room


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The walls around this process."""

    kind: Kind
    unchanged: tuple[str, ...] = ()
    """Places that can only be read, where otherwise files go nowhere."""
    refused: tuple[str, ...] = ()
    """Why better walls, or any, are not to be had: what the kernel said."""


def in_words(walls: Standing, what: str) -> str:
    """What stood around `what`, such as `the script`, for a report."""
    if walls.kind == "namespaces":
        only = f" ({', '.join(walls.unchanged[:3])} could only be read)" if walls.unchanged else ""
        return f"{what} ran in namespaces of its own: what it wrote went nowhere{only}, and it had no network"
    if walls.kind == "landlock":
        return f"{what} ran under Landlock and seccomp: it wrote into a scratch folder alone, and had no network"
    return f"{what} ran without walls (--unwalled), with all rights of its user"


def go_behind(asked: Asked) -> Standing:
    """Returns in another process, which stands behind walls; this one waits and ends with its exit code.

    Of kind `none` where the machine offers no walls: then nothing is closed, and the caller must run nothing.
    To be called by a process of one thread.
    """
    warden.stand_guard()
    privileges.offer_first()
    refused: list[str] = []
    doors: dict[Kind, Callable[[Asked, int], Standing]] = {"namespaces": _namespaces, "landlock": _landlock}
    for kind in WALLS:
        hear, say = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(hear)
            return _entered(doors[kind], asked, say, tuple(refused))
        os.close(say)
        with os.fdopen(hear, "rb") as answer:
            problem = answer.read()
        if not problem:
            for descriptor in asked.descriptors:
                os.close(descriptor)
            warden.guard(child)
        os.waitpid(child, 0)
        refused.append(problem.decode("utf-8", "replace"))
    return Standing(kind="none", refused=tuple(refused))


def stay_outside(asked: Asked) -> Standing:
    """As `go_behind`, with limits and no walls: for a user who said so."""
    warden.stand_guard()
    privileges.offer_first()
    child = os.fork()
    if child:
        for descriptor in asked.descriptors:
            os.close(descriptor)
        warden.guard(child)
    warden.leave_guard()
    os.setsid()
    privileges.limit(asked.bounds)
    return Standing(kind="none")


def _entered(door: Callable[[Asked, int], Standing], asked: Asked, say: int, refused: tuple[str, ...]) -> Standing:
    """In the child; a wall that does not stand is told to the warden, and this process ends."""
    try:
        warden.leave_guard()
        privileges.close_others((*asked.descriptors, say))
        standing = door(asked, say)
    except (NoWallError, OSError) as problem:
        os.write(say, str(problem).encode() or b"refused")
        os._exit(1)
    os.close(say)
    return Standing(kind=standing.kind, unchanged=standing.unchanged, refused=refused)


def _namespaces(asked: Asked, say: int) -> Standing:
    unchanged = namespaces.enter(asked.room, closed=(*asked.descriptors, say))
    os.setsid()
    privileges.limit(asked.bounds)
    privileges.give_up()
    openings = Openings(namespaces=True, local_sockets=not unchanged)
    system_calls.restrict(system_calls.rules(openings, os.getpid()))
    return Standing(kind="namespaces", unchanged=unchanged)


def _landlock(asked: Asked, _say: int) -> Standing:
    landlock.version()
    os.setsid()
    privileges.limit(asked.bounds)
    privileges.give_up(read_all=True)
    version = landlock.restrict(asked.scratch)
    openings = Openings(namespaces=False, own_signals=version >= 6, truncation=version >= 3)
    system_calls.restrict(system_calls.rules(openings, os.getpid()))
    return Standing(kind="landlock")
