"""Gives traces: from memory, from the cache, or by tracing, and only then imports torch (I/O)."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import field
from typing import TYPE_CHECKING, Literal, Protocol

from gpu_plan.planner.model.adapter import Adapter
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.device import DeviceKind
from gpu_plan.planner.trace.entries import Entries, Told, assumptions_of
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.trace.shipped.lookup import ShippedTraces, find_shipped, refusal_key, shelf_key, trace_key
from gpu_plan.planner.trace.shipped.needed import NotTraceableError, needs_tracing
from gpu_plan.planner.trace.sizes.ranges import ranges_for
from gpu_plan.planner.trace.static import static_trace
from gpu_plan.planner.trace.variant import Regime, StepVariant, is_one_graph, shared_out

if TYPE_CHECKING:
    from gpu_plan.planner.trace.session import TracingSession
    from gpu_plan.planner.trace.walled.client import WalledSession

ONE_GRAPH = (
    "the whole model is compiled as one graph, anew for each micro batch and kind of checkpointing: a minute or more "
    "of a processor each for a large model; --pin asks for one of them, "
    "--set compile.regional=true compiles a block once"
)


class Provider(Protocol):
    """What the search asks of whatever is planned: a model by name, or a training script."""

    def spec(self) -> ModelSpec:
        """Parameters and identity of the model."""
        ...

    def trace(self, variant: StepVariant, micro_batch: int) -> StepTrace:
        """A trace that holds at `micro_batch`."""
        ...

    def static_trace(self, regime: Regime) -> StepTrace:
        """A trace without a step, whose parameters stand as `regime` has them."""
        ...

    def held(self) -> AbstractContextManager[None]:
        """Within, several sizes of one rank's part are asked for."""
        ...

    def assumptions(self) -> tuple[list[str], list[str]]:
        """What the traces used so far were told about values, and the notes made while tracing."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A step that another process asked for."""

    variant: StepVariant
    micro_batch: int
    points: tuple[int, ...] = ()
    told: Told | None = None
    """What its trace tells; None where none was given."""


@dataclass(slots=True)
class Twins:
    """What providers of one model for several devices have in common."""

    traces: dict[str, StepTrace] = field(default_factory=dict)
    specs: dict[str, ModelSpec] = field(default_factory=dict)
    books: "dict[str, ShippedTraces | None]" = field(default_factory=dict)
    """What is shipped, by adapter: a book is opened and unpacked once."""


@dataclass(slots=True, kw_only=True)
class TraceProvider:
    """Traces and facts of one model on one kind of device."""

    source: ModelSource
    device: DeviceKind
    attention: str
    adapter: Adapter | None = None
    """What is trained instead of the model itself, if anything."""
    use_cache: bool = True
    shipped: bool = True
    """Whether the traces that come with this program are looked at."""
    script_seconds: float | None = None
    unwalled: bool = False
    """As of the request: for a factory, which is the user's own code."""
    note: Callable[[str], None] = lambda _: None
    """Told about cache entries that had to be made again, and about slow work that starts."""
    wide: bool = False
    """Whether a trace serves as many micro batches as it can, rather than what is asked for soonest."""
    at_hand: bool = False
    """Whether only what is at hand is given, in memory, kept or shipped: NotTraceableError for the rest."""
    twins: Twins = field(default_factory=Twins)
    """Shared with providers for other devices: a step is traced once for all whose kernels are chosen alike."""
    _traces: dict[tuple[str, tuple[int, ...]], StepTrace] = field(default_factory=dict)
    _told: dict[tuple[str, tuple[int, ...]], Told] = field(default_factory=dict)
    """What each of them was told, though it is let go."""
    _alike: "TraceProvider | None" = None
    """Whose traces are those of this one as well."""
    _static: dict[Regime, StepTrace] = field(default_factory=dict)
    _spec: ModelSpec | None = None
    _session: "TracingSession | WalledSession | None" = None
    _holding: ExitStack | None = None
    """Whatever `held` keeps open."""
    _shipped_traces: "ShippedTraces | Literal[False] | None" = False
    """False: not looked for."""
    _shipped: bool = False
    _refusals: dict[str, str] = field(default_factory=dict)
    """Why a variant cannot be traced, by what was asked."""
    _left_out: set[int] = field(default_factory=set)
    """Micro batches that were asked for and could not be traced."""
    _not_shared_out: set[str] = field(default_factory=set)
    """How ranks would share a copy that were asked for and could not be traced, in words."""
    _asked: dict[tuple[StepVariant, int], None] = field(default_factory=dict)

    def spec(self) -> ModelSpec:
        """Parameters and identity of the built model."""
        if self._spec is None:
            shipped = self._find_shipped_traces()
            if shipped is not None:
                self._spec, self._shipped = shipped.spec(self.source.id), True
            elif self._on_any_device:
                if self._adapter_key not in self.twins.specs:
                    self.twins.specs[self._adapter_key] = self._entries("any").spec(lambda: self._open_session().spec())
                self._spec = self.twins.specs[self._adapter_key]
            else:
                self._spec = self._entries().spec(lambda: self._open_session().spec())
        return self._spec

    def ships(self, variant: StepVariant, micro_batch: int) -> bool:
        """Whether the trace that holds there comes with this program: nothing of the model has to be built for it."""
        points = ranges_for(micro_batch, alone=variant.compilation is not None)
        return any(self._from_shelf(variant, samples) is not None for samples in points)

    def trace(self, variant: StepVariant, micro_batch: int) -> StepTrace:
        """A trace that holds at `micro_batch`."""
        self._asked[variant, micro_batch] = None
        for points in ranges_for(micro_batch, alone=variant.compilation is not None):
            found = self._lookup(variant, points)
            if found is not None:
                return found
        refusal = f"refusal {self.source.id} {variant.key()} {micro_batch}"
        self._refuse_again(refusal, variant, micro_batch)
        try:
            self._refuse_unless_at_hand()
            session = self._open_session(variant)
        except NotTraceableError:
            if not self.at_hand:
                shared = shared_out(variant)
                if shared is None:
                    self._left_out.add(micro_batch)
                else:
                    self._not_shared_out.add(shared)
            raise
        if is_one_graph(variant):
            self.note(ONE_GRAPH)
        try:
            made = session.trace(variant, micro_batch)
        except CannotSplitError as problem:
            self._refusals[refusal] = str(problem)
            self._entries().keep_refusal(refusal, str(problem))
            raise
        self._know((variant.key(), made.samples), made)
        common = self._common(variant, made.samples)
        if common is not None:
            self.twins.traces[common] = made
            self._entries("any").keep_trace(common, made)
        else:
            self._entries().keep_trace(f"trace {variant.key()} {made.samples}", made)
        return made

    def _refuse_again(self, refusal: str, variant: StepVariant, micro_batch: int) -> None:
        """CannotSplitError where the model is known to refuse: it takes seconds to find out anew."""
        shipped = self._find_shipped_traces()
        key = refusal_key(self.device, self.attention, variant, micro_batch, alike=self.alike)
        why = None if shipped is None else shipped.refusal(key)
        why = why or self._refusals.get(refusal) or self._entries().refusal(refusal)
        if why is not None:
            raise CannotSplitError(why)

    @property
    def asked(self) -> tuple[tuple[StepVariant, int], ...]:
        """What was asked for so far, each once, in the order in which it was."""
        return tuple(self._asked)

    def given(self, since: int) -> tuple[Given, ...]:
        """What was asked for behind so many, as another process takes it in: with what it tells, without the trace."""
        return tuple(self._given(*one) for one in self.asked[since:])

    def _given(self, variant: StepVariant, micro_batch: int) -> Given:
        for points in ranges_for(micro_batch, alone=variant.compilation is not None):
            told = self._told.get((variant.key(), points))
            if told is not None:
                return Given(variant=variant, micro_batch=micro_batch, points=points, told=told)
        return Given(variant=variant, micro_batch=micro_batch)

    def asks(self, others: Iterable[Given]) -> None:
        """Takes in what another process was given, as if it had been asked for here: `assumptions` then tell it in its
        turn. No trace is read for that."""
        for one in others:
            if one.told is None:
                with suppress(NotTraceableError, CannotSplitError):
                    self.trace(one.variant, one.micro_batch)
            else:
                self._asked[one.variant, one.micro_batch] = None
                self._told.setdefault((one.variant.key(), one.points), one.told)

    def static_trace(self, regime: Regime) -> StepTrace:
        """A trace without a step, whose parameters stand as `regime` has them: needs no tracing."""
        if regime not in self._static:
            self._static[regime] = static_trace(self.spec(), regime)
        return self._static[regime]

    def assumptions(self) -> tuple[list[str], list[str]]:
        """What the traces used so far were told about values, and the notes made while tracing."""
        sites, notes = assumptions_of(self._told.values())
        shipped = self._from_the_book()
        return sites, [*notes, *shipped, *([] if self.walls is None else [self.walls])]

    def _from_the_book(self) -> list[str]:
        if not self._shipped_traces or not self._shipped:
            return []
        return self._shipped_traces.assumptions(self._left_out, sorted(self._not_shared_out))

    @property
    def walls(self) -> str | None:
        """What stands around a factory's process, in words; None where none was started."""
        return getattr(self._session, "walls", None)

    def _lookup(self, variant: StepVariant, points: tuple[int, ...]) -> StepTrace | None:
        key = (variant.key(), points)
        if key in self._traces:
            return self._traces[key]
        common = self._common(variant, points)
        trace = None if common is None else self.twins.traces.get(common)
        trace = trace or (None if self._alike is None else self._alike._traces.get(key))
        trace = trace or self._from_shelf(variant, points)
        if trace is None and common is not None:
            trace = self._entries("any").trace(common)
        elif trace is None:
            trace = self._entries().trace(f"trace {variant.key()} {points}")
        if trace is not None:
            self._know(key, trace)
            if common is not None:
                self.twins.traces[common] = trace
        return trace

    def _know(self, key: tuple[str, tuple[int, ...]], trace: StepTrace) -> None:
        self._traces[key] = trace
        self._told[key] = Told.of(trace)

    def takes(self, other: "TraceProvider") -> None:
        """What another provider has of the same model, built alike for the same device, serves this one too: a book is
        opened and read once. What this one is asked for is told by itself alone."""
        if not self.serves_as(other):
            return
        self._alike, self._static = other, other._static
        self._shipped_traces = other._find_shipped_traces()

    def serves_as(self, other: "TraceProvider") -> bool:
        """Whether a trace of either is one of the other."""
        mine, theirs = (
            (id(one.source), one.device, one.attention, one._adapter_key, one.shipped, one.use_cache)
            for one in (self, other)
        )
        return mine == theirs

    def let_go(self, seq_len: int) -> None:
        """Holds no steps of that length in memory that are kept elsewhere: whoever asks once more reads them again."""
        if not self.use_cache:
            return
        gone = {variant.key() for variant, _ in self._asked if variant.seq_len == seq_len}
        self._drop([key for key in self._traces if key[0] in gone])

    def close(self) -> None:
        """Holds nothing in memory but what it tells: nobody asks it for more. A book names who is told of damage."""
        self._drop(list(self._traces))
        self._shipped_traces, self._alike = False, None

    def _drop(self, keys: Iterable[tuple[str, tuple[int, ...]]]) -> None:
        gone = [self._traces.pop(key) for key in keys]
        for name in [name for name, trace in self.twins.traces.items() if any(trace is one for one in gone)]:
            del self.twins.traces[name]

    def _common(self, variant: StepVariant, points: tuple[int, ...]) -> str | None:
        """Name of a step that is the same on all devices whose kernels are chosen alike; None where it is not."""
        key = trace_key(self.device, self.attention, variant, points) if self._on_any_device else None
        return None if key is None else f"trace {key} {self._adapter_key}"

    @property
    def _on_any_device(self) -> bool:
        """Whether the model is built alike for every GPU: no weights in formats whose kernels ask which one it is."""
        config, adapter = self.source.config, self.adapter
        if config is None or "quantization_config" in config or "compression_config" in config:
            return False
        return self.device.kernels is not None and (adapter is None or not (adapter.peft.quantises or adapter.base))

    @property
    def alike(self) -> bool:
        """Whether what is shipped of the model was traced for every device whose kernels are chosen alike."""
        return self.adapter is None or self._on_any_device

    @property
    def _adapter_key(self) -> str:
        return "" if self.adapter is None else self.adapter.key()

    def _from_shelf(self, variant: StepVariant, points: tuple[int, ...]) -> StepTrace | None:
        shipped = self._find_shipped_traces()
        if shipped is None:
            return None
        known = shipped.trace(shelf_key(self.device, self.attention, variant, points, alike=self.alike))
        return shipped.told(self.device, self.attention, variant, points) if known is None else known

    def _find_shipped_traces(self) -> ShippedTraces | None:
        if self._shipped_traces is False:
            known = self.shipped and self.source.config is not None
            self._shipped_traces = self._opened_book() if known else None
        return self._shipped_traces

    def _opened_book(self) -> ShippedTraces | None:
        books, adapter = self.twins.books, self._adapter_key
        if adapter not in books:
            books[adapter] = find_shipped(self.source.digest, self._tell, adapter=adapter)
        return books[adapter]

    def _tell(self, text: str) -> None:
        self.note(text)

    def _open_session(self, variant: StepVariant | None = None) -> "TracingSession | WalledSession":
        if self._session is None:
            self._refuse_unless_at_hand()
            shared = None if variant is None or self._find_shipped_traces() is None else shared_out(variant)
            why = "no trace of this is shipped" if shared is None else f"no trace is shipped of {shared}"
            needs_tracing(self.source.id, why, extra="trace" if self.adapter is None else "peft")
        if self._session is None and self.source.kind == "factory":
            self.note(f"tracing {self.source.id}, behind walls")
            from gpu_plan.planner.trace.walled.client import WalledSession

            self._session = WalledSession(
                self.source,
                self.device,
                self.attention,
                self.adapter,
                seconds=self.script_seconds,
                unwalled=self.unwalled,
                note=self.note,
            )
        if self._session is None:
            self.note("tracing")
            from gpu_plan.planner.trace.session import TracingSession

            self._session = TracingSession(self.source, self.device, self.attention, self.adapter, wide=self.wide)
            self._hold()
        return self._session

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within, several sizes of one rank's part are asked for: whatever has to be built for them is built once."""
        with ExitStack() as self._holding:
            self._hold()
            yield
        self._holding = None

    def _hold(self) -> None:
        held = getattr(self._session, "held", None)  # a factory's session has no parts
        if self._holding is not None and held is not None:
            self._holding.enter_context(held())

    def _refuse_unless_at_hand(self) -> None:
        if self.at_hand:
            raise NotTraceableError(f"{self.source.id}: no trace of this is at hand")

    def _entries(self, device: str | None = None) -> Entries:
        words = (self.source.digest, device or self.device.key, self.attention, self._adapter_key)
        return Entries(words=words, use_cache=self.use_cache, note=self.note)
