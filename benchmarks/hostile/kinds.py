"""Every generator by name."""

from collections.abc import Callable, Mapping
from random import Random

from benchmarks.hostile import documents, models, tools, words
from benchmarks.hostile.case import Case

KINDS: Mapping[str, tuple[Callable[[int, Random], Case], int]] = {
    "tools": (tools.configuration, 400),
    "tables": (tools.tables, 250),
    "plans": (documents.plans, 400),
    "runs": (documents.runs, 250),
    "manifests": (documents.manifests, 100),
    "snapshots": (documents.snapshots, 150),
    "scripts": (documents.scripts, 100),
    "prompts": (documents.prompts, 50),
    "hosts": (words.hosts, 150),
    "weights": (models.headers, 250),
    "model": (models.configuration, 450),
    "gpus": (words.gpus, 250),
    "words": (words.lines, 500),
}
"""The generator, and how many of the whole set are its."""


def generate(kind: str, seed: int) -> Case:
    """The same case for the same kind and seed, on every machine."""
    return KINDS[kind][0](seed, Random(f"{kind}/{seed}"))


def whole_set() -> list[tuple[str, int]]:
    """Kinds and seeds of all cases, mixed: the first of them stand for all."""
    cases = [(kind, seed) for kind, (_, count) in KINDS.items() for seed in range(count)]
    Random("order").shuffle(cases)
    return cases
