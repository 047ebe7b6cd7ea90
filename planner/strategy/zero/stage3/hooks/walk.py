"""ZeRO-3's hooks along a step: what the coordinator gathers and releases, which buckets are reduced, and who waits.

Mirrors deepspeed/runtime/zero/stage3.py: DeepSpeedZeroOptimizer_Stage3 (__add_grad_to_ipg_bucket,
__reduce_and_partition_ipg_grads) and parameter_offload.py: setup_zero_stage3_hooks.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from weakref import WeakValueDictionary

import numpy as np

from gpu_plan.planner.memory.schedule import Freed
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.strategy.base import RankContext
from gpu_plan.planner.strategy.zero.common import ZeroConfig
from gpu_plan.planner.strategy.zero.stage3.gather import Coordinator
from gpu_plan.planner.strategy.zero.stage3.hooks.script import (
    AT_ONCE,
    FETCH,
    GIVE,
    GRADIENT,
    LABELS,
    PARTITION,
    REDUCE,
    REDUCED,
    TAKE,
    Script,
)
from gpu_plan.planner.strategy.zero.stage3.hooks.structure import Swapping, carried_out, kernels, scripts, seen
from gpu_plan.planner.strategy.zero.stage3.leaves import leaf_parameters
from gpu_plan.planner.strategy.zero.stage3.partition import Partitions, holders
from gpu_plan.planner.strategy.zero.stage3.queues import GATHERS, REDUCES, Queues
from gpu_plan.planner.strategy.zero.stage3.storage import GATHERED, Limits
from gpu_plan.planner.strategy.zero.stage3.swap import SwapError, SwapPool
from gpu_plan.planner.strategy.zero.stage3.traffic import gathering, reducing
from gpu_plan.planner.strategy.zero.stage3.views import (
    lookup_modules,
    module_events,
    packed_in_graph,
    read_parameters,
    viewed_parameters,
)
from gpu_plan.planner.trace.events import Kind, Mark
from gpu_plan.planner.workload.training import Checkpointing


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """What a walk goes by."""

    context: RankContext
    config: ZeroConfig
    parts: Partitions
    dtype: str
    builder: StreamBuilder
    """Says where passes lie; nothing is placed in it."""
    weights_on_host: bool
    pool: SwapPool | None = None


def script_of(walked: Walked) -> Script:
    """The acts of a rank: those that another rank has made already, of this trace or one like it, where nothing tells
    them apart. Raises SwapError where swap buffers do not suffice.
    """
    context, parts, pool = walked.context, walked.parts, walked.pool
    here, key = carried_out(context.trace), _key(walked)
    script = _walk(walked, key) if pool is None else _swapping(walked, key, pool)
    placed = here.get(key, lambda: _placed(walked, script))
    return here.get((key, context.world_size), lambda: placed.among(parts, context.world_size, walked.dtype))


def walking(walked: Walked) -> Iterator[None]:
    """The walk before anybody asks, in pieces of a few milliseconds: whoever asks meanwhile goes on from there. Raises
    SwapError as `script_of`."""
    known, pool, key = scripts(walked.context.trace), walked.pool, _key(walked)
    there: Container[object] = known if pool is None else known.swapping
    if key not in there:
        walk = _BEGUN.setdefault((id(known), key), _Walk(walked))
        while key not in there and _BEGUN.get((id(known), key)) is walk and walk.go_on():
            yield
        if key not in there and _BEGUN.get((id(known), key)) is not walk:
            return  # Somebody went on with it, and was broken off.
    if pool is None:
        _walk(walked, key)
    else:
        _swapping(walked, key, pool)


_BEGUN: "WeakValueDictionary[tuple[int, object], _Walk]" = WeakValueDictionary()
"""Walks that are under way in pieces, by their scripts and key, as long as anybody has their pieces."""


def _walk(walked: Walked, key: object) -> Script:
    """The walk, of those that are known."""
    known = scripts(walked.context.trace)
    if key not in known:
        known[key] = (_BEGUN.pop((id(known), key), None) or _Walk(walked)).script()
    return known[key]


def _swapping(walked: Walked, key: object, pool: SwapPool) -> Script:
    """The same through swap buffers, which are left as the walk leaves them."""
    known = scripts(walked.context.trace)
    if key not in known.swapping:
        walk = _BEGUN.pop((id(known), key), None) or _Walk(walked)
        script = needed = None
        try:
            script = walk.script()
        except SwapError as error:
            needed = error.needed
        assert walk.pool is not None
        known.swapping[key] = Swapping(script=script, needed=needed, pool=walk.pool.copied())
    found = known.swapping[key]
    pool.become(found.pool)
    if found.script is None:
        raise SwapError(found.needed)
    return found.script


_GRADIENT, _ENTER, _EXIT, _BACKWARD_ENTER = map(int, (Kind.GRADIENT, Kind.ENTER, Kind.EXIT, Kind.BACKWARD_ENTER))
"""Plain numbers: to compare members of an enumeration, at each of thousands of events, takes several times as long."""
_PIECE = 500
"""Events at which a walk can be left and gone on with: some three milliseconds of it."""
_BEGINS, _BOUND, _ENDS = range(3)
"""Places of a pass that are no events: where forward begins, outputs take the place of those before, backward ends."""
_EVENTS = 3
"""The place behind the first of its events."""


def _placed(walked: Walked, script: Script) -> Script:
    """A script in which the trace's own points stand, for those that are counted through all passes."""
    trace, builder, places = walked.context.trace, walked.builder, module_events(walked.context.trace)
    marked = (Mark.FORWARD, Mark.OUTPUTS_BOUND, Mark.BACKWARD_END)
    points = [
        [*(builder.at_mark(in_pass, mark) for mark in marked), *builder.after_each(in_pass, places)]
        for in_pass in builder.passes
    ]
    launched = kernels(trace)
    each = np.arange(len(points))[:, None] * launched[-1:].sum() + launched[places]
    return script.placed(np.asarray(points, dtype=np.int64).reshape(-1), each.reshape(-1))


def _limits(walked: Walked) -> Limits:
    config = walked.config
    return Limits(
        prefetch=config.prefetch,
        max_live=config.max_live,
        max_reuse=config.max_reuse,
        world_size=walked.context.world_size,
    )


def _key(walked: Walked) -> object:
    """All that an act depends on but the trace, and the ranks to whose number what is gathered is padded."""
    context, parts, config, ranks = walked.context, walked.parts, walked.config, walked.context.world_size
    return (
        parts.numel,
        parts.persistent,
        parts.scale,
        parts.trainable,
        (config.prefetch, config.max_live, config.max_reuse),
        (config.reduce_bucket, config.overlap, walked.dtype),
        len(walked.builder.passes),
        context.stack.traits.is_trainer,
        context.peft.adapts and context.checkpointing is not Checkpointing.NONE,
        (ranks == 1, ranks == 1 and walked.weights_on_host),
        None if walked.pool is None else (walked.pool.swapped, walked.pool.buffers),
    )


class _Acts:
    """The coordinator's storage: acts, and what of them waits."""

    def __init__(self, script: Script, queues: Queues) -> None:
        self._acts, self._queues, self._script = script.acts, queues, script
        self._tickets = 0
        self._gathered: set[int] = set()
        """Tickets of what the computing stream is recorded on when it is freed: parameters of the gathering stream."""

    def take(self, at: int, elements: int, label: str, padded: Sequence[int] = ()) -> int:
        ticket = self._tickets
        self._tickets += 1
        if label == GATHERED:
            self._gathered.add(ticket)
        if padded:
            self._script.sized.append((len(self._acts), tuple(padded)))
        self._acts.append((at, TAKE, elements, LABELS.index(label)))
        return ticket

    def fetch(self, at: int, elements: int, parameter: int) -> int:
        ticket = self._tickets
        self._tickets += 1
        self._script.sized.append((len(self._acts), (parameter,)))
        self._acts.append((at, FETCH, elements, 0))
        return ticket

    def give(self, at: int, ticket: int) -> None:
        waits = self._queues.free_gathered() if ticket in self._gathered else None
        self._acts.append((at, GIVE, ticket, self.waiting(waits)))

    def gather(self, at: int, elements: int, parameters: Sequence[int]) -> None:
        del at, elements
        self.sends(GATHERS, gathering, parameters)
        self._queues.gather()

    def limit(self, at: int) -> None:
        self._queues.limit((at, len(self._acts)))

    def use(self, at: int, landed: int) -> None:
        del at
        self._queues.use(landed)

    def sends(self, kind: str, operators: Callable[[int, int], tuple[int, int]], parameters: Sequence[int]) -> None:
        """Something is about to be queued on a stream of its own, if there are any."""
        if self._queues.sends:
            self._script.sent.append((kind, operators, tuple(parameters)))

    def waiting(self, waits: Freed | None) -> int:
        """The number of a wait."""
        return AT_ONCE if waits is None else waits


class _Walk:
    """One rank's way through its passes and steps."""

    def __init__(self, walked: Walked) -> None:
        trace = walked.context.trace
        self._walked, self._trace, self._builder, self._parts = walked, trace, walked.builder, walked.parts
        self._script = Script()
        self._queues = Queues(overlaps=walked.config.overlap)
        self._acts = _Acts(self._script, self._queues)
        self._coordinator: Coordinator[int] = Coordinator(
            numel=walked.parts.numel,
            owned=holders(trace),
            persistent=walked.parts.persistent,
            limits=_limits(walked),
            storage=self._acts,
            on_host=walked.weights_on_host,
            pool=walked.pool,
            viewed=viewed_parameters(trace),
            in_graph=packed_in_graph(trace),
            frozen=frozenset(index for index, parameter in enumerate(trace.parameters) if not parameter.trainable),
            scale=walked.parts.scale,
            read=read_parameters(trace),
        )
        self._is_trainer = walked.context.stack.traits.is_trainer
        self._lookups = lookup_modules(trace)
        self._leaves = leaf_parameters(trace)
        self._delayed = frozenset(index for indices in self._leaves.values() for index in indices)
        self._bucket: list[int] = []
        self._bucket_elements = 0
        self._seen = seen(trace)
        self.pool = walked.pool
        self._pieces, self._whole = self._goes(), False
        self._lacks: SwapError | None = None

    def script(self) -> Script:
        """All of it, by places instead of points. Raises SwapError."""
        while self.go_on():
            pass
        if self._lacks is not None:
            raise SwapError(self._lacks.needed)
        assert self._whole, "it was broken off"
        return self._script

    def go_on(self) -> bool:
        """One more piece; False where none is left."""
        try:
            return next(self._pieces, self) is None
        except SwapError as error:
            self._lacks = error.with_traceback(None)
            return False

    def _goes(self) -> Iterator[None]:
        script, coordinator = self._script, self._coordinator
        for number, in_pass in enumerate(self._builder.passes):
            yield from self._run(number * (_EVENTS + len(self._seen.kinds)))
            script.close()
            if in_pass.last and self._parts.trainable:
                coordinator.begin_step(_BEGINS)
                script.close()
                coordinator.end_step(_BEGINS)
                script.close()
        script.streams = self._queues.streams
        script.gathered = coordinator.gathers.copy()
        script.end()
        self._whole = True

    def _run(self, first: int) -> Iterator[None]:
        """A pass, whose places begin with that number."""
        coordinator, seen = self._coordinator, self._seen
        self._queues.begin(self._moment(first + _BEGINS))
        coordinator.begin(first + _BEGINS)
        self._script.bucketed.clear()
        # The Trainer forgets the pass before when backward has ended.
        root_entered, bound = False, -1 if self._is_trainer else first + _EVENTS + seen.bound
        acts, launched = self._script.acts, self._queues.streams.launched
        events = zip(seen.kinds, seen.subjects, seen.tells, seen.recomputed, strict=True)
        for at, (kind, subject, tells, recomputed) in enumerate(events, first + _EVENTS):
            if at == bound:
                coordinator.drop_graphs(first + _BOUND, but=1)
            if kind == _BACKWARD_ENTER and not root_entered:
                # Backward of the outputs enters the root first, of which traces, as of nothing to be gathered, say no
                # more.
                coordinator.fetch(at, 0, backward=True)
                root_entered = True
            if not at % _PIECE:
                yield
            launched(0, (at, len(acts)))  # how many kernels, each trace says for itself
            self._hook(at, kind, subject, tells=tells, recomputed=recomputed)
        end = first + _ENDS
        for module in self._entered_last():
            coordinator.fetch(end, module, backward=True)
        self._reduce(end)
        self._queues.end_backward(self._moment(end))
        coordinator.finish_backward(end)
        if self._is_trainer:
            coordinator.drop_graphs(end, but=0)

    def _hook(self, at: int, kind: int, subject: int, *, tells: bool, recomputed: bool) -> None:
        """What runs at one event of a module or a gradient; `tells` and `recomputed` as in `Seen`.

        The hook that releases after backward hangs on a module's inputs: it never runs where none has a gradient, as
        token ids have none, and in what runs backward last.
        """
        coordinator = self._coordinator
        if kind == _GRADIENT:
            if not tells:
                return  # A loss that caches gradients runs several backward passes: the last one completes it.
            coordinator.forget_view(at, subject)
            if subject not in self._delayed:
                self._arrive(at, subject)
        elif kind == _ENTER:
            coordinator.fetch(at, subject, backward=False)
        elif kind == _EXIT:
            coordinator.release(at, subject, backward=False, recorded=tells, recomputed=recomputed)
        elif kind == _BACKWARD_ENTER:
            coordinator.fetch(at, subject, backward=True)
        elif subject in self._leaves:
            for parameter in self._leaves[subject]:
                self._arrive(at, parameter)
            coordinator.release(at, subject, backward=True)
        elif tells and subject not in self._lookups:
            coordinator.release(at, subject, backward=True)

    def _moment(self, at: int) -> tuple[int, int]:
        return at, len(self._script.acts)

    def _entered_last(self) -> list[int]:
        """A frozen input embedding (the first lookup that runs), to which backward comes although it has no gradient.

        Checkpointing has its output require one (transformers modeling_utils.py: gradient_checkpointing_enable,
        enable_input_require_grads). That hook is registered before DeepSpeed's, whose own is then put around an output
        that does (parameter_offload.py: _pre_backward_module_hook): the weight is gathered once more, and one that is
        needed at the end of the recorded order is not let go of after forward.
        """
        context, trace = self._walked.context, self._trace
        if not context.peft.adapts or context.checkpointing is Checkpointing.NONE:
            return []
        frozen = {parameter.module for parameter in trace.parameters if not parameter.trainable}
        entered = trace.subject[trace.kind == Kind.ENTER].tolist()
        first = next((module for module in entered if module in self._lookups), None)
        return [] if first is None or trace.modules[first] not in frozen else [first]

    def _arrive(self, at: int, parameter: int) -> None:
        if not self._trace.parameters[parameter].trainable:
            return
        numel, largest = self._parts.numel[parameter], self._walked.config.reduce_bucket
        if self._bucket and self._bucket_elements + numel > largest:
            self._reduce(at)
        if numel <= largest:
            self._free_gradient(at, parameter, self._queues.copy_gradient())
        else:
            self._queues.hold_gradient()
        self._bucket.append(parameter)
        self._bucket_elements += numel

    def _free_gradient(self, at: int, parameter: int, waits: Freed | None) -> None:
        self._script.acts.append((at, GRADIENT, parameter, self._acts.waiting(waits)))

    def _reduce(self, at: int) -> None:
        """Partitions are interleaved into a new buffer, unless one evenly divided gradient is reduced in place."""
        if not self._bucket:
            return
        script, acts, bucket = self._script, self._script.acts, self._bucket
        self._acts.sends(REDUCES, reducing, bucket)
        self._queues.reduce(self._moment(at))
        script.bucketed[tuple(bucket)] += 1
        script.sized.append((len(acts), tuple(bucket)))
        acts.append((at, REDUCE, 0, 0))
        for parameter in bucket:
            acts.append((at, PARTITION, parameter, 0))
            if self._parts.numel[parameter] > self._walked.config.reduce_bucket:
                self._free_gradient(at, parameter, self._queues.free_reduced())
        acts.append((at, REDUCED, 0, 0))
        self._bucket, self._bucket_elements = [], 0
