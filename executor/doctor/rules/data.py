"""Which samples a rank sees, and what becomes of its results."""

import ast
from collections.abc import Iterator

from gpu_plan.executor.doctor.flow import Flow
from gpu_plan.executor.doctor.flow import values as v
from gpu_plan.executor.doctor.flow.events import Call
from gpu_plan.executor.doctor.intent import Intent
from gpu_plan.executor.doctor.rules.common import is_distributed, is_plain_backward, text
from gpu_plan.executor.doctor.rules.rule import Hit, Rule

_SEEDING = frozenset(
    {"set_seed", "manual_seed", "seed_everything", "manual_seed_all", "seed", "enable_full_determinism"}
)
_SPLITS = frozenset({"random_split", "train_test_split"})
_DRAWS = frozenset(
    {"randn", "rand", "randint", "randn_like", "rand_like", "randint_like", "normal", "bernoulli", "multinomial"}
)
_RANDOM_MODULES = ("torch.", "random.", "numpy.random.")


def _set_epoch(flow: Flow, intent: Intent) -> Iterator[Hit]:
    if flow.calls_of("set_epoch"):
        return
    for call in flow.calls_of("DistributedSampler"):
        shuffle = call.keyword("shuffle")
        off = isinstance(shuffle, ast.Constant) and shuffle.value is False
        if not off and any(_iterated_in_epochs(flow, origin) for origin in _loaders_of(flow, call)):
            yield Hit(line=call.line, what=f"{text(call.node)}, and set_epoch is nowhere called")


def _loaders_of(flow: Flow, sampler: Call) -> list[int]:
    """Origins of the loaders that take the sampler."""
    found = []
    for call in flow.calls_of("DataLoader", "StatefulDataLoader"):
        given = [*call.keywords.values(), *call.arguments]
        if any(value.kind == "sampler" and value.origins & sampler.result.origins for value in given):
            found += list(call.result.origins)
    return found


def _iterated_in_epochs(flow: Flow, origin: int) -> bool:
    """Whether a loader is gone through within another loop, with a backward pass: epoch after epoch."""
    for call in flow.calls_of("backward"):
        for position, loop in enumerate(call.context.loops):
            if position > 0 and origin in loop.over.origins:
                return True
    return False


def _sampler_and_shuffle(flow: Flow, intent: Intent) -> Iterator[Hit]:
    for call in flow.calls_of("DataLoader", "StatefulDataLoader"):
        shuffle = call.keyword("shuffle")
        on = isinstance(shuffle, ast.Constant) and shuffle.value is True
        sampler = call.keyword("sampler")
        batches = call.keyword("batch_sampler")
        if on and _is_given(sampler):
            yield Hit(line=call.line, what="DataLoader(shuffle=True) with a sampler")
        elif _is_given(batches) and (on or _is_given(sampler) or _is_given(call.keyword("batch_size"))):
            yield Hit(line=call.line, what="DataLoader(batch_sampler=...) with batch_size, shuffle or sampler")


def _is_given(node: ast.expr | None) -> bool:
    """Whether the argument is surely something: a call made right there."""
    return isinstance(node, ast.Call)


def _shared_twice(flow: Flow, intent: Intent) -> Iterator[Hit]:
    for call in flow.calls:
        if call.receiver.kind == "accelerator" and call.method in {"prepare", "prepare_data_loader"}:
            for value in v.flat(call.result):
                if value.kind == "loader" and value.has(v.RANK_SAMPLER):
                    what = f"{text(call.node)} is given a loader that a DistributedSampler already shares out"
                    yield Hit(line=call.line, what=what)


def _loader_not_prepared(flow: Flow, intent: Intent) -> Iterator[Hit]:
    if not flow.prepared:
        return
    for call in flow.calls_of("backward"):
        if call.receiver.kind != "accelerator":
            continue
        for loop in call.context.loops:
            over = loop.over
            unshared = not over.marks & {v.PREPARED, v.RANK_SAMPLER, v.PER_RANK}
            bare = bool(over.origins) and unshared and not over.origins & flow.prepared
            if bare and over.kind in {"loader", "each"} and isinstance(over.target, ast.Call):
                if _iterates_own_share(over.target):
                    continue
                yield Hit(
                    line=loop.node.lineno, what=f"training goes over {_source(loop.node)}, which was never prepared"
                )


def _iterates_own_share(made: ast.Call) -> bool:
    words = ast.unparse(made).lower()
    return any(word in words for word in ("rank", "process_index", "iterable", "stream", "bucket"))


def _source(node: ast.stmt) -> str:
    return text(node.iter, 40) if isinstance(node, ast.For) else "a loader"


def _plain_ddp_same_data(flow: Flow, intent: Intent) -> Iterator[Hit]:
    if not flow.wrapped or flow.uses_accelerator or not is_distributed(flow):
        return
    for call in flow.calls_of("backward"):
        if not is_plain_backward(call):
            continue
        for loop in call.context.loops:
            over = loop.over
            if over.kind not in {"loader", "each"} or not isinstance(over.target, ast.Call):
                continue
            own = over.marks & {v.RANK_SAMPLER, v.PER_RANK} or _iterates_own_share(over.target)
            given = {word.arg for word in over.target.keywords}
            if not own and not given & {"sampler", "batch_sampler"}:
                yield Hit(line=loop.node.lineno, what=f"every rank goes over the whole of {_source(loop.node)}")


def _duplicates(flow: Flow, intent: Intent) -> Iterator[Hit]:
    for call in flow.calls_of("gather"):
        own = call.receiver.kind == "accelerator" or call.name.startswith("accelerate.")
        if not own or not call.arguments or v.SAMPLE not in v.all_marks(call.arguments[0]):
            continue
        over = [loop.over for loop in call.context.loops]
        evaluating = any(v.PREPARED in value.marks for value in over) and not _trains(flow, call)
        if evaluating and not _cut_later(flow, call):
            yield Hit(line=call.line, what=f"{text(call.node)} of per-sample results in an evaluation loop")


def _trains(flow: Flow, call: Call) -> bool:
    inner = call.context.loops[-1].node
    return any(inner in [loop.node for loop in other.context.loops] for other in flow.calls_of("backward"))


def _cut_later(flow: Flow, call: Call) -> bool:
    """Whether the script itself drops the samples that were added: it slices to the data set's length somewhere."""
    return flow.cuts_to_length


def _uneven(flow: Flow, intent: Intent) -> Iterator[Hit]:
    for call in flow.calls_of("gather", "gather_for_metrics"):
        if call.receiver.kind == "accelerator" and call.arguments and v.GENERATED in v.all_marks(call.arguments[0]):
            yield Hit(line=call.line, what=f"{text(call.node)} of generated tokens, whose length differs between ranks")


def _unseeded_split(flow: Flow, intent: Intent) -> Iterator[Hit]:
    if not is_distributed(flow):
        return
    for position, event in enumerate(flow.events):
        if not isinstance(event, Call) or event.method not in _SPLITS:
            continue
        if (
            any(word.arg in {"generator", "seed", "random_state"} for word in event.node.keywords)
            or len(event.node.args) > 2
        ):
            continue
        off = event.keyword("shuffle")
        seeded = any(isinstance(before, Call) and _seeds(before) for before in flow.events[:position])
        if not seeded and not (isinstance(off, ast.Constant) and off.value is False):
            yield Hit(line=event.line, what=f"{text(event.node)} without a seed: each rank splits differently")


def _unseeded(flow: Flow, intent: Intent) -> Iterator[Hit]:
    if not is_distributed(flow) or any(_seeds(call) for call in flow.calls):
        return
    told = any(word.arg in {"seed", "data_seed"} for call in flow.calls for word in call.node.keywords)
    # What only others call is no program: they may seed.
    own = [event for event in flow.events[: flow.entered] if isinstance(event, Call) and event.method == "backward"]
    trained = [call for call in own if call.context.loops]
    if trained and not told:
        yield Hit(line=trained[0].context.loops[0].node.lineno, what="training begins, and nothing is seeded before")


def _same_draws(flow: Flow, intent: Intent) -> Iterator[Hit]:
    if not is_distributed(flow):
        return
    seeds = [call for call in flow.calls if _seeds(call) and _seeds_ranks_alike(call)]
    differing = [call for call in flow.calls if _seeds(call) and not _seeds_ranks_alike(call)]
    if not seeds or differing:
        return
    for call in flow.calls:
        drawn = call.method in _DRAWS and call.name.startswith(_RANDOM_MODULES)
        if not drawn or call.keyword("generator") is not None or "no_grad" in call.context.withs:
            continue
        if _for_show(call):
            continue
        if any(_trains_in(flow, loop.node) for loop in call.context.loops[-1:]) and not call.context.guards & {
            "main_only"
        }:
            what = f"{text(call.node)} in the training loop, with every rank seeded alike (line {seeds[0].line})"
            yield Hit(line=call.line, what=what)
            return


def _for_show(call: Call) -> bool:
    """Whether a draw is for evaluation or logging: its function's name says so, or Python's `random` picks there."""
    elsewhere = len(call.context.loops) == call.context.first_loop
    words = ("eval", "valid", "log", "test", "infer", "generate", "plot", "show")
    named = any(word in call.context.function.lower() for word in words)
    return elsewhere and (named or call.name.startswith("random."))


def _seeds(call: Call) -> bool:
    """Whether the call seeds a global generator; `torch.Generator().manual_seed(...)` has no dotted name."""
    return call.method in _SEEDING and bool(call.name) and call.receiver.kind != "generator"


def _seeds_ranks_alike(call: Call) -> bool:
    if call.keyword("device_specific") is not None:
        return False
    return bool(call.arguments) and not any(value.has(v.PER_RANK) for value in call.arguments)


def _trains_in(flow: Flow, loop: ast.stmt) -> bool:
    return any(loop in [inner.node for inner in call.context.loops] for call in flow.calls_of("backward"))


RULES = (
    Rule(
        id="set-epoch-missing",
        severity="warning",
        why="a DistributedSampler shuffles by its epoch: without set_epoch every epoch has the same order",
        fix="call sampler.set_epoch(epoch) at the start of each epoch",
        check=_set_epoch,
    ),
    Rule(
        id="sampler-and-shuffle",
        severity="error",
        why="DataLoader refuses the combination with a ValueError",
        fix="drop shuffle (the sampler decides the order), or the sampler",
        check=_sampler_and_shuffle,
        several_ranks=False,
    ),
    Rule(
        id="shared-out-twice",
        severity="error",
        why="prepare shares the data out again: with N ranks each sees one part in N squared, the rest nobody",
        fix="give prepare a plain DataLoader(shuffle=True); it does what the DistributedSampler would",
        check=_shared_twice,
    ),
    Rule(
        id="loader-not-prepared",
        severity="error",
        why="every rank trains on all of the data: N times the work for the same steps",
        fix="give the loader to accelerator.prepare, and go over what it returns",
        check=_loader_not_prepared,
    ),
    Rule(
        id="data-not-shared-out",
        severity="warning",
        why="ranks train on the same samples: N times the work for the same epoch",
        fix="give the DataLoader sampler=DistributedSampler(dataset), and call its set_epoch each epoch",
        check=_plain_ddp_same_data,
    ),
    Rule(
        id="gather-keeps-duplicates",
        severity="warning",
        why="the last batch is filled up with repeated samples so that ranks agree in size: metrics count them twice",
        fix="write accelerator.gather_for_metrics(...)",
        check=_duplicates,
    ),
    Rule(
        id="gather-uneven",
        severity="error",
        why="gather needs the same shape on every rank: it hangs, or gives garbage",
        fix="pad first: accelerator.pad_across_processes(tokens, dim=1, pad_index=tokenizer.pad_token_id)",
        check=_uneven,
    ),
    Rule(
        id="unseeded-split",
        severity="error",
        why="one rank trains on what another evaluates on: the evaluation is spoilt",
        fix="seed the split (generator=torch.Generator().manual_seed(seed), or seed=...)",
        check=_unseeded_split,
    ),
    Rule(
        id="unseeded",
        severity="note",
        why="a run cannot be repeated, and one that is resumed may shuffle otherwise",
        fix="call accelerate.utils.set_seed(seed) before data and model are made",
        check=_unseeded,
        several_ranks=False,
    ),
    Rule(
        id="ranks-draw-alike",
        severity="warning",
        why="ranks draw the same random numbers: the batch has fewer different noises, masks or steps than it seems",
        fix="write set_seed(seed, device_specific=True), once models with random weights have been made",
        check=_same_draws,
    ),
)
