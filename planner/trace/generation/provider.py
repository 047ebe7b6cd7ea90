"""Gives traces of generations: from memory, from the cache, or by tracing, and only then imports torch (I/O)."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpu_plan.planner.model.quantization import Scheme
from gpu_plan.planner.model.source.copies import check_head, stored_copies
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.model.spec import ModelSpec, ParameterSpec
from gpu_plan.planner.trace.device import DeviceKind
from gpu_plan.planner.trace.entries import Entries, assumptions_of
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.generation.sizes import Sizes
from gpu_plan.planner.trace.generation.variant import GenerationVariant
from gpu_plan.planner.trace.shipped.needed import needs_tracing

if TYPE_CHECKING:
    from gpu_plan.planner.trace.generation.session import GenerationSession


@dataclass(slots=True, kw_only=True)
class GenerationProvider:
    """Generations and facts of one model, in one weight type, on one kind of device."""

    source: ModelSource
    device: DeviceKind
    attention: str
    dtype: str
    scheme: Scheme | None = None
    """How weights are quantised, if they are."""
    use_cache: bool = True
    note: Callable[[str], None] = lambda _: None
    """Told about cache entries that had to be made again, and about slow work that starts."""
    _traces: dict[str, StepTrace] = field(default_factory=dict)
    _sizes: Sizes = field(default_factory=Sizes)
    _spec: ModelSpec | None = None
    _merged: frozenset[str] | None = None
    _packed: frozenset[str] | None = None
    _session: "GenerationSession | None" = None
    _holding: ExitStack | None = None
    """Whatever `held` keeps open."""

    def spec(self) -> ModelSpec:
        """Parameters and identity of the built model, in the weight type."""
        if self._spec is None:
            self._spec = self._entries().spec(lambda: self._open_session().spec())
        return self._spec

    def merged(self) -> frozenset[str]:
        """Parameters that loading puts together from several of the checkpoint's tensors."""
        if self._merged is None:
            self._merged = self._entries().names("merged", lambda: self._open_session().merged())
            if self._session is not None:
                self.packed()  # a server may ask for them: the model is not built again for it
        return self._merged

    def packed(self) -> tuple[ParameterSpec, ...]:
        """Weights that a quantised model keeps as buffers; none of another."""
        if self.scheme is None:
            return ()
        if self._packed is None:
            self._packed = self._entries().names("packed", lambda: self._open_session().packed())
        return tuple(map(_packed, sorted(self._packed)))

    def copies(self) -> Mapping[str, str]:
        """Tied parameters that the checkpoint holds as tensors of their own, and what they are tied to."""
        if self.scheme is not None:
            check_head(self.source, self.spec().parameters)
        return stored_copies(self.source, self.spec().parameters, quantised=self.scheme is not None)

    def trace(self, variant: GenerationVariant) -> StepTrace:
        """The generation that `variant` describes."""
        key = variant.key()
        if key not in self._traces:
            self._traces[key] = self._sizes.between(variant) or self._recorded(variant)
        return self._traces[key]

    def _recorded(self, variant: GenerationVariant) -> StepTrace:
        """From the cache, or by tracing; sizes between such recordings are told by them."""
        key = variant.key()
        made = self._entries().trace(key)
        if made is None:
            made = self._open_session().trace(variant)
            self._entries().keep_trace(key, made)
        self._sizes.add(variant, made)
        return made

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within, several sizes of one rank's part are asked for: whatever has to be built for them is built once."""
        with ExitStack() as self._holding:
            if self._session is not None:
                self._holding.enter_context(self._session.held())
            yield
        self._holding = None

    def assumptions(self) -> tuple[list[str], list[str]]:
        """What the traces used so far were told about values, and the notes made while tracing."""
        return assumptions_of(self._traces.values())

    def _open_session(self) -> "GenerationSession":
        if self._session is None:
            needs_tracing(self.source.id)
            self.note("tracing")
            from gpu_plan.planner.trace.generation.session import GenerationSession

            self._session = GenerationSession(self.source, self.device, self.attention, self.dtype, self.scheme)
            if self._holding is not None:
                self._holding.enter_context(self._session.held())
        return self._session

    def _entries(self) -> Entries:
        scheme = "" if self.scheme is None else self.scheme.key()
        words = ("infer", self.source.digest, self.device.key, self.attention, self.dtype, scheme)
        return Entries(words=words, use_cache=self.use_cache, note=self.note)


def _packed(line: str) -> ParameterSpec:
    """A buffer as `GenerationSession.packed` writes it: name, dtype and sizes between spaces."""
    name, dtype, *sizes = line.split(" ")
    return ParameterSpec(name=name, shape=tuple(map(int, sizes)), dtype=dtype, trainable=False)
