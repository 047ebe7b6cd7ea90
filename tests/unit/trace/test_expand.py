"""Expansion on traces made by hand: what is copied, what is referred to, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from gpu_plan.planner.trace.events import CATEGORY_INDEX, Category, Kind, Mark, ParameterInfo, StepTrace
from gpu_plan.planner.trace.folding.expand import expand
from gpu_plan.planner.trace.folding.units import CannotFoldError, Fold
from tests.support.same_trace import assert_same_trace

HIDDEN = 64
"""Bytes per sample of what each layer puts out."""


class Tape:
    """Writes a step of `depth` layers of which only `executed` run, as the recorder would."""

    def __init__(self, depth: int, executed: list[int]) -> None:
        self.events: list[tuple[int, int]] = []
        self.tensors: list[tuple[int, int, int, int, int]] = []
        self.ops: list[tuple[int, int, float, list[int], list[int]]] = []
        self.depth = depth
        self.executed = executed
        self.names = ["", "layers", *(f"layers.{i}" for i in range(depth))]

    def tensor(self, fixed: int, slope: int, module: int, parameter: int = -1, category: int | None = None) -> int:
        default = CATEGORY_INDEX[Category.ACTIVATIONS]
        self.tensors.append((fixed, slope, module, parameter, default if category is None else category))
        self.events.append((Kind.ALLOC, len(self.tensors) - 1))
        return len(self.tensors) - 1

    def free(self, tensor: int) -> None:
        self.events.append((Kind.FREE, tensor))

    def op(self, module: int, phase: int, flops: float, reads: list[int], writes: list[int]) -> None:
        self.ops.append((module, phase, flops, reads, writes))
        self.events.append((Kind.OPERATOR, len(self.ops) - 1))

    def trace(self) -> StepTrace:
        kind, subject = (np.array(column, np.int64) for column in zip(*self.events, strict=True))
        columns = [np.array(column, np.int64) for column in zip(*self.tensors, strict=True)]
        modules, phases, flops, reads, writes = zip(*self.ops, strict=True)
        none = np.zeros(len(self.ops))
        return StepTrace(
            kind=kind,
            subject=subject,
            bytes_fixed=columns[0],
            bytes_per_sample=columns[1],
            category=columns[4],
            tensor_module=columns[2],
            tensor_operator=np.zeros(len(self.tensors), np.int64),
            tensor_shape=["[]"] * len(self.tensors),
            tensor_parameter=columns[3],
            modules=list(self.names),
            operator_names=["mm"],
            op_name=np.zeros(len(self.ops), np.int64),
            op_module=np.array(modules, np.int64),
            op_phase=np.array(phases, np.int64),
            op_flops_fixed=none,
            op_flops_per_sample=np.array(flops),
            op_bytes_fixed=none,
            op_bytes_per_sample=none,
            op_reads_at=np.cumsum([0, *map(len, reads)]),
            op_reads=np.array([t for row in reads for t in row], np.int64),
            op_writes_at=np.cumsum([0, *map(len, writes)]),
            op_writes=np.array([t for row in writes for t in row], np.int64),
            parameters=[
                ParameterInfo(
                    name=f"layers.{i}.weight", shape=(4, 4), dtype="float32", trainable=True, module=f"layers.{i}"
                )
                for i in range(self.depth)
            ],
            buffer_bytes=[],
            inputs=[],
            samples=(1,),
            tokens_per_sample=1,
        )


def step(
    depth: int,
    *,
    folded: bool,
    period: int = 1,
    ends: int = 0,
    masked: bool = False,
    shared: bool = False,
    kept: bool = False,
    gathered: bool = False,
    hoarded: bool = False,
    odd_size: int | None = None,
    odd_work: int | None = None,
    twice: bool = False,
) -> StepTrace:
    """Layers that keep their input for backward and hand a gradient down.

    `shared`: every layer adds to one gradient that the last layer begins. `kept`: something outside frees each
    layer's output at the end. `gathered`: an operator outside reads them. `hoarded`: the first layer frees the outputs
    of all in backward. `masked`: the second layer is the last to use one from outside. `ends`: layers that run beside
    the two units, as many as a unit has if 0. `odd_size`, `odd_work`: one layer differs. `twice`: one layer runs again.
    """
    run = period + (ends or period)
    executed = [i for i in range(depth) if not folded or i < run or i >= depth - run]
    tape = Tape(depth, executed)
    tape.events.append((Kind.MARK, Mark.FORWARD))
    outputs: dict[int, int] = {}
    hidden = tape.tensor(0, HIDDEN, 0)
    tape.op(0, 0, 1.0, [-1], [hidden])
    mask = tape.tensor(0, 3, 0) if masked else -1
    inputs: dict[int, int] = {}
    for layer in executed + ([1] if twice else []):
        module = 2 + layer
        tape.events.append((Kind.ENTER, module))
        inputs[layer] = hidden
        hidden = tape.tensor(0, HIDDEN + (layer == odd_size), module)
        tape.op(module, 0, 7.0 + (layer == odd_work), [-1, inputs[layer]], [hidden])
        outputs[layer] = hidden
        tape.events.append((Kind.EXIT, module))
    if gathered:
        tape.op(0, 0, 1.0, list(outputs.values()), [])
    tape.events += [(Kind.MARK, Mark.OUTPUTS_BOUND), (Kind.MARK, Mark.BACKWARD)]
    gradient = tape.tensor(0, HIDDEN, 0)
    tape.op(0, 1, 1.0, [hidden], [gradient])
    common = -1
    for layer in reversed(executed):
        module = 2 + layer
        tape.events.append((Kind.BACKWARD_ENTER, module))
        weight = tape.tensor(64, 0, module, layer, CATEGORY_INDEX[Category.GRADIENTS])
        handed = tape.tensor(0, HIDDEN, module)
        tape.op(module, 1, 14.0, [inputs[layer], gradient], [handed, weight])
        tape.events.append((Kind.GRADIENT, layer))
        if shared and common < 0:
            common = tape.tensor(0, 8, module)
        elif shared:
            tape.op(module, 1, 1.0, [common, handed], [common])
        tape.free(gradient)
        gradient = handed
        if masked and layer == 1:
            tape.free(mask)
        for output in list(outputs.values()) if hoarded and layer == 0 else []:
            tape.free(output)
        if not kept and not hoarded:
            tape.free(outputs[layer])
        tape.events.append((Kind.BACKWARD_EXIT, module))
    tape.events.append((Kind.MARK, Mark.BACKWARD_END))
    if kept:
        for output in outputs.values():
            tape.free(output)
    if shared:
        tape.free(common)
    tape.free(gradient)
    return tape.trace()


def the_fold(depth: int) -> Fold:
    return Fold(list_name="layers", start=0, period=1, units=depth)


@pytest.mark.parametrize("depth", [5, 6, 12, 100])
@pytest.mark.parametrize("options", [{}, {"shared": True}, {"kept": True}, {"shared": True, "kept": True}])
def test_expanded_equals_full(depth: int, options: dict[str, bool]) -> None:
    assert_same_trace(
        expand(step(depth, folded=True, **options), the_fold(depth)), step(depth, folded=False, **options)
    )


@pytest.mark.parametrize(("period", "units"), [(2, 5), (3, 7)])
def test_units_of_several_layers(period: int, units: int) -> None:
    depth = period * units
    fold = Fold(list_name="layers", start=0, period=period, units=units)
    assert_same_trace(
        expand(step(depth, folded=True, period=period, shared=True), fold), step(depth, folded=False, shared=True)
    )


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("period", "units"), [(2, 6), (3, 7), (6, 5)])
def test_units_of_several_layers_between_single_ones(period: int, units: int, masked: bool) -> None:
    depth = period * (units - 2) + 2
    fold = Fold(list_name="layers", start=0, period=period, units=units, ends=1)
    assert_same_trace(
        expand(step(depth, folded=True, period=period, ends=1, shared=True, masked=masked), fold),
        step(depth, folded=False, shared=True, masked=masked),
    )


def test_what_each_unit_lets_go_of_the_outside_is_refused() -> None:
    """A tensor made outside for each layer is freed by each: those left out are not copies of one another."""
    trace = step(12, folded=True, period=1, masked=True)
    mask = next(int(t) for t in range(trace.num_tensors) if trace.bytes_per_sample[t] == 3)
    place = int(np.flatnonzero((trace.kind == Kind.FREE) & (trace.subject == mask))[0])
    at = int(np.flatnonzero((trace.kind == Kind.BACKWARD_EXIT) & (trace.subject == 2 + 10))[0])
    other = replace(trace, kind=np.insert(trace.kind, at, Kind.FREE), subject=np.insert(trace.subject, at, mask))
    assert at < place
    with pytest.raises(CannotFoldError):
        expand(other, the_fold(12))


def test_differing_sizes_are_refused() -> None:
    with pytest.raises(CannotFoldError, match="differ in size"):
        expand(step(8, folded=True, odd_size=6), the_fold(8))


def test_differing_work_is_refused() -> None:
    with pytest.raises(CannotFoldError, match="differ in work"):
        expand(step(8, folded=True, odd_work=1), the_fold(8))


def test_a_reader_of_all_layers_is_refused() -> None:
    with pytest.raises(CannotFoldError, match="outside the blocks reads"):
        expand(step(8, folded=True, gathered=True), the_fold(8))


def test_layers_that_free_what_is_not_their_neighbours_are_refused() -> None:
    with pytest.raises(CannotFoldError, match="not its neighbour"):
        expand(step(8, folded=True, hoarded=True), the_fold(8))


def test_layers_that_run_twice_are_refused() -> None:
    with pytest.raises(CannotFoldError, match="more than once"):
        expand(step(8, folded=True, twice=True), the_fold(8))


def test_layers_without_backward_are_refused() -> None:
    trace = step(8, folded=True)
    keep = trace.kind != Kind.BACKWARD_ENTER
    with pytest.raises(CannotFoldError, match="both directions"):
        expand(replace(trace, kind=trace.kind[keep], subject=trace.subject[keep]), the_fold(8))


def test_modules_that_the_trace_does_not_name_are_refused() -> None:
    trace = step(8, folded=True)
    names = ["elsewhere" if name == "layers.6" else name for name in trace.modules]
    with pytest.raises(CannotFoldError, match="share modules"):
        expand(replace(trace, modules=names), the_fold(8))


def of_layer(trace: StepTrace, layer: int, phase: int) -> int:
    """A layer's first operator of a phase."""
    return int(np.flatnonzero((trace.op_module == 2 + layer) & (trace.op_phase == phase))[0])


@pytest.mark.parametrize("layer", [1, 6])
def test_layers_that_free_in_another_order_are_refused(layer: int) -> None:
    """As many events, of the same kinds: what one lets go first the other lets go last."""
    trace = step(8, folded=True)
    left = int(np.flatnonzero((trace.kind == Kind.BACKWARD_EXIT) & (trace.subject == 2 + layer))[0])
    assert trace.kind[left - 2 : left].tolist() == [Kind.FREE] * 2
    subject = trace.subject.copy()
    subject[left - 2 : left] = subject[left - 2 : left][::-1]
    with pytest.raises(CannotFoldError, match="differ in what they allocate or free"):
        expand(replace(trace, subject=subject), the_fold(8))


@pytest.mark.parametrize("layer", [1, 6])
def test_a_layer_that_reads_the_embedding_where_the_others_read_the_layer_before_is_refused(layer: int) -> None:
    trace = step(8, folded=True)
    reads = trace.op_reads.copy()
    reads[trace.op_reads_at[of_layer(trace, layer, 0)] + 1] = 0
    with pytest.raises(CannotFoldError, match="differ in what they read"):
        expand(replace(trace, op_reads=reads), the_fold(8))


def dropped(trace: StepTrace) -> StepTrace:
    """The caller drops each layer's input when the layer has returned (`x = layer(x)`): nothing is kept."""
    layers = range(len(trace.parameters))
    ran = [layer for layer in layers if np.any(trace.op_module == 2 + layer)]
    inputs = {layer: int(trace.op_reads[trace.op_reads_at[of_layer(trace, layer, 0)] + 1]) for layer in ran}
    gone = {tensor for tensor in inputs.values()}
    events: list[tuple[int, int]] = []
    for kind, subject in zip(trace.kind.tolist(), trace.subject.tolist(), strict=True):
        if kind != Kind.FREE or subject not in gone:
            events.append((kind, subject))
        if kind == Kind.EXIT and subject - 2 in inputs:
            events.append((Kind.FREE, inputs[subject - 2]))
    kinds, subjects = (np.array(column, np.int64) for column in zip(*events, strict=True))
    return replace(trace, kind=kinds, subject=subjects)


@pytest.mark.parametrize("depth", [5, 12])
def test_what_a_caller_drops_when_a_layer_returns_belongs_to_the_layer(depth: int) -> None:
    """The last one's too: it frees what the layer before has put out."""
    assert_same_trace(expand(dropped(step(depth, folded=True)), the_fold(depth)), dropped(step(depth, folded=False)))
