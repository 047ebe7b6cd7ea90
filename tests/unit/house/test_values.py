"""Classes of values are those of the standard library, made in less time."""

import copy
import dataclasses
import pickle
import weakref
from dataclasses import FrozenInstanceError, InitVar, asdict, field, fields, replace
from typing import ClassVar

import pytest

from gpu_plan.planner.plain.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """As most are."""

    x: int
    y: int = 2
    names: tuple[str, ...] = ()
    of_nobody: list[int] = field(default_factory=list, compare=False, repr=False)

    @property
    def total(self) -> int:
        return self.x + self.y


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Standard:
    """The same by the standard library."""

    x: int
    y: int = 2
    names: tuple[str, ...] = ()
    of_nobody: list[int] = field(default_factory=list, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Solid(Point):
    """One that derives from another."""

    z: int = 3


@dataclass(slots=True)
class Count:
    """One that changes."""

    places: int
    more: list[int] = field(default_factory=list)
    known: int = 0

    def __post_init__(self) -> None:
        self.known += self.places


@dataclass(frozen=True, slots=True)
class One:
    """Of one value."""

    value: float


@dataclass(frozen=True)
class Own:
    """With an equality of its own, and a value that is no field."""

    kind: ClassVar[str] = "own"
    value: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own)

    def __hash__(self) -> int:
        return 7


@dataclass(slots=True, weakref_slot=True, kw_only=True, eq=False)
class Kept:
    """With values that are no arguments, and no equality."""

    given: int
    made: list[int] = field(default_factory=list, init=False)
    known: str = field(default="unknown", init=False)
    later: int = field(init=False)


@dataclass
class Open:
    """With a value of the class that is no argument."""

    first: int
    second: int = field(default=3, init=False)
    third: int = 4


@dataclass(frozen=True)
class Derived:
    """With an argument that is no value."""

    scale: InitVar[int]
    value: int = field(init=False)

    def __post_init__(self, scale: int) -> None:
        object.__setattr__(self, "value", 2 * scale)


def test_values_that_are_no_arguments():
    kept = Kept(given=1)
    assert (kept.given, kept.made, kept.known, hasattr(kept, "later")) == (1, [], "unknown", False)
    assert kept.made is not Kept(given=1).made
    assert weakref.ref(kept)() is kept
    assert kept != Kept(given=1)
    assert (Open(1, 2).second, Open(1, 2).third, "second" in vars(Open(1))) == (3, 2, False)
    assert Derived(4).value == 8
    for wrong in (lambda: Kept(given=1, made=[]), lambda: Open(1, second=2), lambda: Derived()):
        with pytest.raises(TypeError, match=r"__init__\(\) (takes|missing|got)"):
            wrong()


def test_arguments_defaults_and_factories():
    first, second = Point(x=1), Point(x=1, names=("a",))
    assert (first.x, first.y, first.names, first.of_nobody, first.total) == (1, 2, (), [], 3)
    assert first.of_nobody is not second.of_nobody
    assert (Count(3).places, Count(3, [1]).more, Count(3).known) == (3, [1], 3)
    assert Solid(x=1).z == 3
    for wrong in (lambda: Point(1), lambda: Point(), lambda: Point(x=1, q=2), lambda: Count()):
        with pytest.raises(TypeError, match=r"__init__\(\) (takes|missing|got)"):
            wrong()


def test_equality_hash_and_text_are_those_of_the_standard_library():
    assert Point(x=1) == Point(x=1, of_nobody=[5])
    assert Point(x=1) != Point(x=2)
    assert Point(x=1) != Solid(x=1)
    assert hash(Point(x=1)) == hash(Standard(x=1)) == hash((1, 2, ()))
    assert repr(Point(x=1)) == repr(Standard(x=1)).replace("Standard", "Point") == "Point(x=1, y=2, names=())"
    assert hash(One(2.0)) == hash((2.0,))
    nan = float("nan")
    theirs = dataclasses.make_dataclass("Theirs", ["value"])
    assert (One(nan) == One(nan)) == (
        theirs(nan) == theirs(nan)
    )  # up to 3.12 as tuples, which look for the same object
    assert Own(1) == Own(2)
    assert hash(Own(1)) == 7
    with pytest.raises(TypeError, match="unhashable"):
        hash(Count(1))


def test_frozen_ones_stay_as_they_are():
    point = Point(x=1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 5
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    for change in (lambda: setattr(point, "unknown", 5), lambda: delattr(point, "unknown")):
        with pytest.raises((FrozenInstanceError, TypeError)):  # the latter from 3.13 on, by the standard library
            change()
    count = Count(1)
    count.places = 4
    assert count.places == 4
    assert not hasattr(point, "__dict__")


def test_classes_of_both_kinds_derive_from_each_other():
    @dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
    class OfOurs(Point):
        z: int = 3

    @dataclass(frozen=True, slots=True, kw_only=True)
    class OfTheirs(Standard):
        z: int = 3

    for one in (OfOurs(x=1), OfTheirs(x=1)):
        assert (one.x, one.z, hash(one)) == (1, 3, hash((1, 2, (), 3)))
        assert replace(one, z=4) != one
        with pytest.raises(FrozenInstanceError):
            one.z = 4
    for kind, frozen in ((Point, False), (Count, True), (Standard, False)):
        with pytest.raises(TypeError, match="cannot inherit"):
            dataclass(frozen=frozen)(type("Wrong", (kind,), {"__annotations__": {"z": int}}))


def test_what_reads_fields_reads_them():
    assert [one.name for one in fields(Solid)] == ["x", "y", "names", "of_nobody", "z"]
    assert replace(Solid(x=1), z=9) == Solid(x=1, z=9)
    assert asdict(Point(x=1)) == asdict(Standard(x=1))
    assert Count.__match_args__ == ("places", "more", "known")


@pytest.mark.parametrize("made", [Point(x=1, names=("a",)), Solid(x=4, z=5), Count(2, [1]), One(1.5), Own(3)])
def test_copies_and_pickles(made):
    assert copy.copy(made) == made
    assert copy.deepcopy(made) == made
    assert [pickle.loads(pickle.dumps(made, protocol)) for protocol in (2, 5)] == [made, made]
