"""`--compile` and its finer settings: what is compiled under which strategy, and what is only approximate."""

import pytest

from gpu_plan.planner.options.words import main_parser
from gpu_plan.planner.search.training.compilation import compilation_notes, compilation_of, is_approximate
from gpu_plan.planner.trace.variant import Compilation
from gpu_plan.planner.workload.training import Attention, Optimizer, Precision, Stack, Workload

INDUCTOR = ("compile.backend", "inductor")


def _workload(*settings: tuple[str, str]) -> Workload:
    return Workload(
        seq_len=128,
        precision=Precision("bf16-mixed"),
        optimizer=Optimizer("adamw"),
        attention=Attention.SDPA,
        stack=Stack.ACCELERATE,
        settings=settings,
    )


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (["--compile"], ["compile.backend=inductor"]),
        (["--set", "compile.backend=aot_eager", "--compile"], ["compile.backend=aot_eager"]),
        (["--no-compile"], []),
    ],
)
def test_the_option_is_short_for_a_setting(words: list[str], settings: list[str]) -> None:
    assert main_parser().parse_args(["m", *words]).settings == settings


@pytest.mark.parametrize(
    ("strategy", "settings", "regions"),
    [
        ("single", (INDUCTOR,), "model"),
        ("ddp", (INDUCTOR, ("compile.regional", "true")), "regional"),
        ("fsdp", (INDUCTOR,), "blocks"),
    ],
)
def test_what_is_compiled(strategy: str, settings: tuple[tuple[str, str], ...], regions: str) -> None:
    found = compilation_of(_workload(*settings), strategy)
    assert isinstance(found, Compilation)
    assert (found.backend, found.regions) == ("inductor", regions)


def test_nothing_is_compiled_unless_asked_nor_under_zero3() -> None:
    assert compilation_of(_workload(), "single") is None
    assert compilation_of(_workload(("compile.backend", "eager")), "single") is None
    assert compilation_of(_workload(INDUCTOR), "zero3") is None


def test_what_is_approximate_says_so() -> None:
    assert not compilation_notes(_workload(INDUCTOR), "single")
    assert all(compilation_notes(_workload(INDUCTOR), name) for name in ("ddp", "fsdp", "zero3"))
    assert is_approximate(_workload(INDUCTOR), "ddp")
    assert not is_approximate(_workload(), "ddp")
