"""What a script does, in the order of doing, each with the circumstances under which it happens."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gpu_plan.executor.doctor.flow.values import NOTHING, Value

MAIN_ONLY = "main_only"
MAIN_SOME = "main_some"
"""The test names the main process, but lets others in too (`is_main_process or ...`)."""
OTHERS_ONLY = "others_only"
SYNC = "sync"
"""Under a test of `sync_gradients`, or of a step count modulo the accumulation."""


@dataclass(frozen=True, slots=True)
class Test:
    """The test of an `if` in whose branch a step stands."""

    node: ast.expr
    local: bool
    """Whether its outcome differs between ranks."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that is being run."""

    node: ast.stmt
    over: Value
    """What it goes over: a loader, or nothing known."""
    guards: frozenset[str]
    """Guards that already held when it was entered."""
    tests: int
    """How many tests already held then."""


@dataclass(frozen=True, slots=True)
class Context:
    """Where a step of the script stands."""

    function: str = ""
    """Name of the function whose body is read; empty at the top level."""
    loops: tuple[Loop, ...] = ()
    """Outermost first, those of callers included."""
    first_loop: int = 0
    """Index in `loops` of the first that belongs to the present function."""
    withs: frozenset[str] = frozenset()
    """Last names of the context managers entered: `accumulate`, `no_grad`, `no_sync`, ..."""
    guards: frozenset[str] = frozenset()
    tests: tuple[Test, ...] = ()
    """Tests of the branches around it, outermost first, those of callers included."""
    first_test: int = 0
    """Index in `tests` of the first that belongs to the present function."""
    depth: int = 0
    """How many calls deep."""

    def guarded(self, *guards: str) -> "Context":
        return replace(self, guards=self.guards | frozenset(guards))

    def tested(self, test: ast.expr, *, local: bool) -> "Context":
        return replace(self, tests=(*self.tests, Test(node=test, local=local)))

    @property
    def local(self) -> bool:
        """Whether only some ranks may come here."""
        return any(test.local for test in self.tests)

    @property
    def tests_in_loop(self) -> tuple[Test, ...]:
        """Tests between the innermost loop and here; all where there is no loop."""
        return self.tests[self.loops[-1].tests :] if self.loops else self.tests


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call."""

    node: ast.Call
    name: str
    """Dotted name with imports resolved: `torch.save`, `accelerate.Accelerator`; of a method on something else, as
    written; empty where the callee has no name."""
    method: str
    """The last name: `backward` in `loss.backward()`."""
    receiver: Value = NOTHING
    """What stands before the last dot, where that is a value and not a module."""
    arguments: tuple[Value, ...] = ()
    keywords: Mapping[str, Value] = field(default_factory=dict)
    result: Value = NOTHING
    context: Context = field(default_factory=Context)
    dropped: bool = False
    """Whether the result is thrown away: the call is a statement."""

    @property
    def line(self) -> int:
        return self.node.lineno

    def keyword(self, name: str) -> ast.expr | None:
        """The expression given for a keyword, or None."""
        for keyword in self.node.keywords:
            if keyword.arg == name:
                return keyword.value
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """An attribute that is read."""

    node: ast.Attribute
    receiver: Value
    context: Context
    called: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """A `break`, `continue` or `return`."""

    node: ast.stmt
    context: Context


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """An environment variable set by the script."""

    node: ast.AST
    name: str
    value: ast.expr | None
    context: Context
    conditional: bool = False
    """Set only where it was not set before (`setdefault`, or under a test that asks for it)."""


Event = Call | Access | Leave | Setting


@dataclass(slots=True)
class Flow:
    """All that was read of one script."""

    events: list[Event] = field(default_factory=list)
    entered: int = 0
    """How many events the module itself brings, with all that it calls; those after belong to what nothing calls."""
    imports: frozenset[str] = frozenset()
    """Dotted names of what is imported."""
    notebook: bool = False
    prepared: set[int] = field(default_factory=set)
    """Origins of all that was given to `prepare`."""
    wrapped: set[int] = field(default_factory=set)
    """Origins of what the script wraps itself."""
    optimizer_sources: dict[int, frozenset[int]] = field(default_factory=dict)
    """By origin of an optimizer: the origins of the models whose parameters it was given."""
    chosen: set[int] = field(default_factory=set)
    """Identities of attribute nodes that stand in a conditional expression which asks for the wrapper first."""
    cuts_to_length: bool = False
    """Whether something is sliced to the length of a data set (`losses[: len(dataset)]`)."""
    truncated: bool = False
    """Whether the reading stopped early because the script calls too deep."""

    @property
    def calls(self) -> list[Call]:
        return [event for event in self.events if isinstance(event, Call)]

    @property
    def accesses(self) -> list[Access]:
        return [event for event in self.events if isinstance(event, Access)]

    def calls_of(self, *methods: str) -> list[Call]:
        """Calls whose last name is one of `methods`."""
        return [call for call in self.calls if call.method in methods]

    @property
    def uses_accelerator(self) -> bool:
        return any(call.result.kind == "accelerator" for call in self.calls) or any(
            call.receiver.kind == "accelerator" for call in self.calls
        )
