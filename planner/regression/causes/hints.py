"""What the user's own lines did to memory, where a captured script shows it. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpu_plan.planner.regression.baseline import Baseline, Standing
from gpu_plan.planner.regression.computed import Computed
from gpu_plan.planner.regression.places import Place, place_of
from gpu_plan.planner.regression.result import Finding
from gpu_plan.planner.units import format_bytes

OPTIMIZER, CHECKPOINTING, MODEL, HELD = "optimizer", "checkpointing", "second model", "held"
RETAINED, VOCABULARY = "retained graph", "vocabulary"
"""Kinds of places, as gpu_plan.planner.capture.watch.noticed has them."""
RECOMPUTED = "recompute_microseconds"
_NAMED = 4
_CONVERTED_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """A place as it is now: what its line says, and where it stands."""

    text: str
    place: Place


def hints(before: Baseline, computed: Computed, delta: int) -> Iterator[Finding]:
    """The causes of a growth by `delta` bytes that can be named outright, the most certain first."""
    now, config = computed.state, computed.config
    places = {kind: Noted(text=text, place=place_of(computed.places[kind])) for kind, text in now.places.items()}
    new = {kind: noted for kind, noted in places.items() if kind not in before.places}
    if HELD in new:
        held = new[HELD]
        kept = places.get(RETAINED)
        said = f"every step leaves memory behind: what `{held.text}` makes is never given back"
        if kept is not None:
            said += f" ({held.place}), its graph is kept by `{kept.text}`"
        yield _finding(said, kept or held, delta)
    elif RETAINED in new:
        kept = new[RETAINED]
        yield _finding(f"the graph is kept after backward: `{kept.text}`", kept, delta)
    if MODEL in new:
        model = new[MODEL]
        yield _finding(f"a second model stands beside the first: `{model.text}`", model, delta, "parameters")
    else:
        yield from _larger(before, now, places, config, delta)
    if before.figures.get(RECOMPUTED, 0) and not now.figures.get(RECOMPUTED, 0):
        gone = before.places.get(CHECKPOINTING)
        told = f": `{gone}` is gone" if gone and CHECKPOINTING not in places else ""
        grown = now.figures.get("at_peak.activations", 0) - before.figures.get("at_peak.activations", 0)
        yield _finding(f"activations are kept, nothing is recomputed in backward any more{told}", None, max(grown, 0))
    yield from _optimizer(before, now, places)
    yield from _converted(before, computed, delta)


def _larger(
    before: Baseline, now: Baseline, places: Mapping[str, Noted], config: Mapping[str, str], delta: int
) -> Iterator[Finding]:
    """A model of more parameters: its vocabulary where that is what grew, else the modules that did."""
    was, is_now = (side.configuration.get("model.vocab_size") for side in (before, now))
    if not isinstance(was, int) or not isinstance(is_now, int) or is_now <= was:
        yield from _wider(before, now, delta)
        return
    said = f"the vocabulary grew, {was:,} -> {is_now:,}: the embeddings, the output layer and the logits with it"
    noted = places.get(VOCABULARY)
    if noted is None and "vocab_size" in config:
        noted = Noted(text="vocab_size", place=place_of(config["vocab_size"]))
    yield _finding(said if noted is None else f"{said}: `{noted.text}`", noted, delta, "parameters")


def _wider(before: Baseline, now: Baseline, delta: int) -> Iterator[Finding]:
    was, is_now = (side.configuration.get("model.parameters") for side in (before, now))
    if not isinstance(was, int) or not isinstance(is_now, int) or is_now <= was:
        return
    grew = {
        Standing.of_key(key).module: size - before.standing.get(key, 0)
        for key, size in now.standing.items()
        if key.startswith("parameters | ") and size > before.standing.get(key, 0)
    }
    named = sorted(grew, key=lambda module: (-grew[module], module))[:_NAMED]
    words = f": {', '.join(named)}" if named else ""
    yield _finding(f"the model grew, {was:,} -> {is_now:,} parameters{words}", None, delta, "parameters")


def _optimizer(before: Baseline, now: Baseline, places: Mapping[str, Noted]) -> Iterator[Finding]:
    growth = {
        name: now.figures.get(name, 0) - before.figures.get(name, 0)
        for name in (*now.figures, *before.figures)
        if name.startswith("at_peak.")
    }
    state = growth.get("at_peak.optimizer_state", 0)
    if state <= 0 or state < max(growth.values()) or OPTIMIZER not in places:
        return
    made = places[OPTIMIZER]
    was, is_now = (side.configuration.get("workload.optimizer") for side in (before, now))
    words = f" ({was} -> {is_now})" if was != is_now else ""
    yield _finding(f"optimizer state grew{words}: `{made.text}`", made, state, "optimizer_state")


def _converted(before: Baseline, computed: Computed, delta: int) -> Iterator[Finding]:
    """Lines that came and convert much: what follows them is computed in the wider type, wherever the peak lies."""
    came = {text: size for text, size in computed.state.widened.items() if text not in before.widened}
    for text, size in sorted(came.items(), key=lambda item: -item[1]):
        if delta > 0 and size >= delta * _CONVERTED_SHARE:
            noted = Noted(text=text, place=place_of(computed.widened[text]))
            yield _finding(f"{format_bytes(size)} are converted to a wider type: `{text}`", noted, size)


def _finding(message: str, noted: Noted | None, delta: int, category: str = "activations") -> Finding:
    place = None if noted is None else noted.place
    return Finding(
        level="notice",
        kind="culprit",
        message=message if place is None else f"{message} in {place}",
        file=None if place is None else place.file,
        line=None if place is None else place.line,
        delta_bytes=delta,
        category=category,
    )
