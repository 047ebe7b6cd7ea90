"""A job in other words: options and settings of the same model on the same devices; nothing is evaluated here."""

from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from gpu_plan.planner.options.request import Request
from gpu_plan.planner.options.task import is_inference
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.workload.adapters import NO_ADAPTERS, Peft, adapters_on
from gpu_plan.planner.workload.optimizers.registry import DEFAULT_OPTIMIZER, optimizers
from gpu_plan.planner.workload.precisions import pure_in
from gpu_plan.planner.workload.training import Workload

_EIGHT_BIT = "-8bit"
"""Behind an optimizer's name: the same with states of eight bits."""
_PADDING = "data.padding"
_NO_PADDING = "none"
_FUSED = "fused-loss"
_LENGTH = "seq-len"
_STACK = "stack"
_FLAGS = (_FUSED,)
"""Options without a value."""
_SHORTEST = 512
"""Tokens: what is asked about at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What is asked for otherwise."""

    options: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of `--set`."""
    same_training: bool = False
    """Whether every step comes to the same: another kernel, less beside it."""
    samples_per_row: float = 1.0
    """Samples that one row of a batch holds where they are packed, as far as it is known."""

    @property
    def words(self) -> str:
        """As on a command line."""
        pieces = [f"--{name}" if name in _FLAGS else f"--{name} {value}" for name, value in self.options.items()]
        return " ".join((*pieces, *(f"--set {key}={value}" for key, value in self.settings.items())))

    @property
    def adapts(self) -> bool:
        """Whether something else is trained than before."""
        return "peft" in self.options

    @property
    def makes_room(self) -> bool:
        """Whether what stands in the node's RAM may find room on the devices for it: worth the time of a trace."""
        return self.adapts or self.of_the_loop

    @property
    def of_the_loop(self) -> bool:
        """Whether it changes who runs the loop, or whose loss it is."""
        return bool({_FUSED, _STACK} & self.options.keys())

    @property
    def packs(self) -> bool:
        """Whether padding gives way to further samples."""
        return _PADDING in self.settings

    def has_all_of(self, other: "Way") -> bool:
        """Whether whoever goes this way goes the other one too."""
        mine, theirs = (
            {*way.options.items(), *(("set", *pair) for pair in way.settings.items())} for way in (self, other)
        )
        return theirs <= mine

    def only_shortens(self, other: "Way") -> bool:
        """Whether nothing but the length of a sample tells it from the other one."""
        mine, theirs = (
            {name: value for name, value in way.options.items() if name != _LENGTH} for way in (self, other)
        )
        return _LENGTH in self.options and mine == theirs and self.settings == other.settings

    def and_(self, other: "Way") -> "Way":
        """Both at once."""
        return Way(
            options={**self.options, **other.options},
            settings={**self.settings, **other.settings},
            same_training=self.same_training and other.same_training,
            samples_per_row=self.samples_per_row * other.samples_per_row,
        )

    def asked_of(self, request: Request) -> Request:
        """The request in these words; what it leaves open is searched."""
        kept = tuple(one for one in request.settings if one.partition("=")[0] not in self.settings)
        added = tuple(f"{key}={value}" for key, value in self.settings.items())
        words = tuple({**dict(request.words), **self.options}.items())
        return replace(request, words=words, settings=(*kept, *added), pinned=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of the model and its class, by which some ways make no sense or a good one."""

    own_kernel: bool = False
    """Whether the class has a kernel for its attention that torch has not."""
    stored: bool = False
    """Whether the checkpoint is quantised already."""
    fused_experts: bool = False
    """Whether the class holds experts that a base in four bits keeps wide unless they are packed on request."""
    wide_experts: bool = False
    """Whether this job has such a base."""
    lean_stack: str = ""
    """A stack that holds less around a frozen base, where the job can be run in it; empty: none."""
    narrow_weights: str = ""
    """Of a generation: a type of 16 bits for weights that would be loaded in fp32; empty: they are narrower."""
    updates_itself: bool = False
    """Whether the library that runs the job has an update of its own, whatever the optimizer is called."""


_NOTHING = Known()


def ways(request: Request, workload: object = None, known: Known = _NOTHING) -> Iterator[Way]:
    """Each by itself, the one that changes least first; of a script, which runs as it is written, none.

    `workload` is the training job's, where it is one.
    """
    given = dict(request.words)
    if request.model.endswith(".py"):
        return
    # It gives the sinks no gradient, which adapters do not ask for.
    frozen = is_inference(given) or Peft(given.get("peft", NO_ADAPTERS)).adapts
    if known.own_kernel and frozen and given.get("attention") != "flash" and "server" not in given:
        yield Way(options={"attention": "flash"}, same_training=True)
    if is_inference(given):
        if known.narrow_weights and "precision" not in given:
            yield Way(options={"precision": known.narrow_weights})
        yield from () if known.stored else _of_inference(given)
        return
    if known.wide_experts:
        yield Way(settings={"quant.experts": "true"})
    if not known.updates_itself:
        yield from _same_update(given, workload)
    if given.get(_FUSED) != "true":
        yield Way(options={_FUSED: "true"}, same_training=True)
    if given.get("attention") == "eager":
        yield Way(options={"attention": "sdpa"}, same_training=True)
    yield from _packed(request)
    peft = Peft(given.get("peft", NO_ADAPTERS))
    if not peft.adapts:
        yield from _leaner_states(given, workload)
    for quantised in (False, True):
        if not peft.quantises and (quantised or not peft.adapts):
            packed = {"quant.experts": "true"} if quantised and known.fused_experts else {}
            yield Way(options={"peft": str(adapters_on(quantised=quantised))}, settings=packed)
    if known.lean_stack and _STACK not in given:
        yield _in_lean_stack(peft, known)


def _in_lean_stack(peft: Peft, known: Known) -> Way:
    """The adapters that were asked for, else those on a quantised base."""
    adapters = {} if peft.adapts else {"peft": str(adapters_on(quantised=True))}
    return Way(options={**adapters, _STACK: known.lean_stack})


def together(request: Request, workload: Workload, known: Known = _NOTHING) -> Iterator[Way]:
    """Several at once, as they are run together: lean states, adapters beside a loss that makes no logits, and with
    those a sample that is half as long, and half of that."""
    alone = list(ways(request, workload, known))
    fused = next((way for way in alone if _FUSED in way.options), Way())
    same = list(_same_update(dict(request.words), workload)) if alone and not known.updates_itself else []
    stacked = [way for way in alone if _STACK in way.options]
    lean = [way for way in alone if {"optimizer", "precision"} & way.options.keys() and way not in same]
    adapters = [way for way in alone if way.adapts and way not in stacked]
    if len(lean) > 1:
        both = lean[0].and_(lean[1])
        yield both
        if fused.options:
            yield both.and_(fused)
    if fused.options:
        for way in (*same, *adapters, *stacked):
            yield way.and_(fused)
    for length in shorter(workload):
        for way in adapters or [Way()]:
            yield Way(options={**way.options, **fused.options, _LENGTH: str(length)}, settings=way.settings)


def shorter(workload: Workload) -> Iterator[int]:
    """Half of the sample's tokens, half of that, and so on."""
    length = workload.seq_len // 2
    while length >= _SHORTEST:
        yield length
        length //= 2


def _of_inference(given: Mapping[str, str]) -> Iterator[Way]:
    if given.get("quantize", "none") != "none":
        return
    for word in ("fp8", "awq-4bit-128") if "server" in given else ("int8", "nf4"):
        yield Way(options={"quantize": word})


def _same_update(given: Mapping[str, str], workload: object) -> Iterator[Way]:
    """The optimizer's own update by a kernel that makes no temporaries."""
    name = given.get("optimizer") or (str(workload.optimizer) if isinstance(workload, Workload) else DEFAULT_OPTIMIZER)
    traits = optimizers().get(name)
    if traits is not None and traits.leaner and not Peft(given.get("peft", NO_ADAPTERS)).adapts:
        yield Way(options={"optimizer": traits.leaner}, same_training=True)


def _leaner_states(given: Mapping[str, str], workload: object) -> Iterator[Way]:
    """States of eight bits; weights, gradients and states in 16 bits, in the type that the job is mixed in."""
    if given.get("optimizer", DEFAULT_OPTIMIZER) == DEFAULT_OPTIMIZER:
        yield Way(options={"optimizer": f"{DEFAULT_OPTIMIZER}{_EIGHT_BIT}"})
    if not isinstance(workload, Workload) or not workload.precision.is_mixed or workload.precision.is_float8:
        return
    try:
        yield Way(options={"precision": str(pure_in(workload.precision.compute_dtype))})
    except KeyError:
        return


def _packed(request: Request) -> Iterator[Way]:
    """Samples one after the other in place of padding, where it was said how much of it there is."""
    padding = dict(text.split("=", 1) for text in request.settings if "=" in text).get(_PADDING, _NO_PADDING)
    if padding == _NO_PADDING:
        return
    try:
        samples = 1 / (1 - float(padding))
    except (ValueError, ZeroDivisionError):  # `longest`: how much shorter the others are is not known
        samples = 1.0
    else:
        if samples == 1.0:
            return
    yield Way(settings={_PADDING: _NO_PADDING}, samples_per_row=samples)
