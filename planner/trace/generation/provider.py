"""Gives traces of generations: from memory, from the cache, or by tracing, and only then imports torch (I/O)."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from gpu_plan.planner.model.quantization import Scheme
from gpu_plan.planner.model.source.copies import check_head, stored_copies
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.model.spec import ModelSpec, ParameterSpec
from gpu_plan.planner.trace.device import DeviceKind
from gpu_plan.planner.trace.entries import Entries, assumptions_of
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.generation.shelf import ShippedGenerations, find_generations
from gpu_plan.planner.trace.generation.sizes import Sizes
from gpu_plan.planner.trace.generation.variant import GenerationVariant
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
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
    shipped: bool = True
    """Whether the generations that come with this program are looked at."""
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
    _shelf: "ShippedGenerations | Literal[False] | None" = False
    """False: not looked for."""
    _refusals: dict[str, str] = field(default_factory=dict)
    """Why the model cannot be parted so, by variant."""

    def spec(self) -> ModelSpec:
        """Parameters and identity of the built model, in the weight type."""
        if self._spec is None:
            shelf = self._find_shelf()
            if shelf is not None:
                self._spec = shelf.spec(self.source.id)
            else:
                self._spec = self._entries().spec(lambda: self._open_session().spec())
        return self._spec

    def merged(self) -> frozenset[str]:
        """Parameters that loading puts together from several of the checkpoint's tensors."""
        if self._merged is None:
            known = self._fact("merged")
            if known is not None:
                self._merged = frozenset(known)
                return self._merged
            self._merged = self._entries().names("merged", lambda: self._open_session().merged())
            if self._session is not None:
                self.packed()  # a server may ask for them: the model is not built again for it
        return self._merged

    def packed(self) -> tuple[ParameterSpec, ...]:
        """Weights that a quantised model keeps as buffers; none of another."""
        if self.scheme is None:
            return ()
        if self._packed is None and (known := self._fact("packed")) is not None:
            self._packed = frozenset(known)
        if self._packed is None:
            self._packed = self._entries().names("packed", lambda: self._open_session().packed())
        return tuple(map(_packed, sorted(self._packed)))

    def copies(self) -> Mapping[str, str]:
        """Tied parameters that the checkpoint holds as tensors of their own, and what they are tied to."""
        if self.scheme is not None:
            check_head(self.source, self.spec().parameters)
        return stored_copies(self.source, self.spec().parameters, quantised=self.scheme is not None)

    def text_config(self) -> Mapping[str, Any]:
        """The part of the config that describes the decoder, as its class completes it. InputError for what the class
        refuses."""
        known = self._fact("text config")
        if known is not None:
            return dict(known)
        needs_tracing(self.source.id)
        # Imported here: a config's defaults are its class's, which takes transformers.
        from gpu_plan.planner.model.build.text_config import text_config

        assert self.source.config is not None
        return text_config(self.source.config)

    def trace(self, variant: GenerationVariant) -> StepTrace:
        """The generation that `variant` describes. CannotSplitError where the model cannot be parted so."""
        key = variant.key()
        if key not in self._traces:
            shelf = self._find_shelf()
            told = None if shelf is None else shelf.trace(variant)
            self._traces[key] = told or self._sizes.between(variant) or self._recorded(variant)
        return self._traces[key]

    def _recorded(self, variant: GenerationVariant) -> StepTrace:
        """From the cache, or by tracing; sizes between such recordings are told by them."""
        key = variant.key()
        made = self._entries().trace(key)
        if made is None:
            self._refuse_again(variant)
            try:
                made = self._open_session().trace(variant)
            except CannotSplitError as problem:
                self._refusals[key] = str(problem)
                self._entries().keep_refusal(f"refusal {key}", str(problem))
                raise
            self._entries().keep_trace(key, made)
        self._sizes.add(variant, made)
        return made

    def _refuse_again(self, variant: GenerationVariant) -> None:
        """CannotSplitError where the model is known to refuse: it takes seconds to find out anew."""
        shelf, key = self._find_shelf(), variant.key()
        why = None if shelf is None else shelf.refusal(variant)
        why = why or self._refusals.get(key) or self._entries().refusal(f"refusal {key}")
        if why is not None:
            raise CannotSplitError(why)

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
        sites, notes = assumptions_of(self._traces.values())
        return sites, [*notes, *([] if not self._shelf else self._shelf.traces.assumptions(traced="generation"))]

    def _find_shelf(self) -> ShippedGenerations | None:
        if self._shelf is False:
            asked = (self.source.digest, self.device, self.attention, self.dtype, self.scheme, self._tell)
            self._shelf = find_generations(*asked) if self.shipped and self.source.config is not None else None
        return self._shelf

    def _tell(self, text: str) -> None:
        self.note(text)

    def _fact(self, name: str) -> Any:
        shelf = self._find_shelf()
        return None if shelf is None else shelf.fact(name)

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
