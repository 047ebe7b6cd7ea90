"""pytest plugin: tests hold the GPU memory of what they train, on a machine without a GPU.

    @pytest.mark.limit_gpu_memory("14 GiB", gpu="A100-40GB")
    def test_training_step():
        train(build_model())

    def test_more_closely(plan_memory):
        with plan_memory(gpu="A100-40GB") as memory:
            train(build_model())
        memory.limit("14 GiB")
        assert memory.at_peak["activations"] < 2 * 2**30

What runs under the marker or inside the `with` runs on torch's meta device: nothing is computed, every allocation is
recorded, and a simulated caching allocator says what the GPU would report. No option is registered; torch and the
planner are imported when the first block is entered.

    block       `PlanMemory`: what `plan_memory` gives, by `gpu_plan.planner.capture.block`
    limit       what a limit says, read and refused in one line
    measured    figures as they travel between processes
    words       a measured test in words
    valueless   what cannot run where no value is computed, in one line
"""

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gpu_plan.executor.pytest_plugin.block import PlanMemory
    from gpu_plan.executor.pytest_plugin.measured import Measured

MARKER = "limit_gpu_memory"
PROPERTY = "plan_memory"
"""Name under which a test's figures travel in its report, as one JSON text for each block."""
_LIMIT: "pytest.StashKey[Any]" = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker, and what gathers the figures of a run."""
    config.addinivalue_line(
        "markers",
        f'{MARKER}(limit, gpu="A100-40GB", of="allocated", task="train"): fails the test when what it trains takes more'
        " memory of that GPU than the limit, such as 14 GiB; of: allocated, reserved or device; task: train or infer."
        " Nothing is computed and no GPU is needed.",
    )
    config.pluginmanager.register(_Gathered(), "plan-memory-gathered")


class _Gathered:
    """Figures of all tests of a run, wherever they ran."""

    def __init__(self) -> None:
        self.measured: list[tuple[str, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test's last report carries all that it measured."""
        if report.when == "teardown":
            self.measured += [(report.nodeid, str(text)) for name, text in report.user_properties if name == PROPERTY]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """A section with what each measured test takes."""
        if self.measured:
            from gpu_plan.executor.pytest_plugin.words import summary_lines

            terminalreporter.write_sep("=", "GPU memory")
            for line in summary_lines(self.measured):
                terminalreporter.write_line(line)


@pytest.fixture
def plan_memory(request: pytest.FixtureRequest) -> "Callable[..., PlanMemory]":
    """`with plan_memory(gpu="A100-40GB") as memory:` measures what runs inside; see `block.py`."""
    node, root = request.node, request.config.rootpath

    def measure(gpu: str | None = None, *, task: str = "train") -> "PlanMemory":
        from gpu_plan.executor.pytest_plugin.block import PlanMemory

        return PlanMemory(gpu, task=task, home=root, done=lambda measured: _keep(node, measured), failed=failed)

    def failed(answered: tuple[str, ...]) -> None:
        _tell_answers(node, answered)

    return measure


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A marker that makes no sense is an error of its test, before anything of it runs."""
    marker = item.get_closest_marker(MARKER)
    if marker is not None:
        from gpu_plan.executor.pytest_plugin.limit import limit_of_marker

        item.stash[_LIMIT] = limit_of_marker(marker.args, marker.kwargs)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Measures a marked test, and holds it to its limit once it has passed."""
    limit = item.stash.get(_LIMIT, None)
    if limit is None:
        return (yield)
    from gpu_plan.executor.pytest_plugin.block import PlanMemory

    block = PlanMemory(
        limit.gpu,
        task=limit.task,
        home=item.config.rootpath,
        done=lambda found: _keep(item, found),
        failed=lambda answered: _tell_answers(item, answered),
    )
    block.limited_to = limit
    with block:
        result = yield
    block.hold()
    return result


def _keep(item: Any, measured: "Measured") -> None:
    """Figures go with the test's reports, across processes too, and are shown where the test fails."""
    from gpu_plan.executor.pytest_plugin.words import breakdown

    item.user_properties.append((PROPERTY, measured.to_json()))
    if not measured.exceeds:  # else the failure says the same
        item.add_report_section("call", "GPU memory", "\n".join(breakdown(measured)))


def _tell_answers(item: Any, answered: tuple[str, ...]) -> None:
    """Beside a failure inside a block: values that it was told, since none is computed."""
    if answered:
        from gpu_plan.executor.pytest_plugin.words import answer_lines

        item.add_report_section("call", "GPU memory", "\n".join(answer_lines(answered)))
