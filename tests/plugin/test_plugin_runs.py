"""The plugin in real pytest runs of a library's own tests, in one process and spread over two."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

import pytest

LIBRARY = Path(__file__).parent / "library"
PASS, FAIL, ERROR, SKIP = "passed", "failure", "error", "skipped"
WANTED = {
    "test_within": (PASS, ""),
    "test_beyond": (FAIL, "limit_gpu_memory: peak allocated is .* above the limit of 100.0 MiB on A100, in "),
    "test_beyond_in_bytes_of_the_device": (FAIL, "limit_gpu_memory: device memory is .* above the limit of 100.0 MiB"),
    "test_model_of_a_fixture": (PASS, ""),
    "test_method": (PASS, ""),
    "test_limit_misspelt": (ERROR, "limit_gpu_memory: size '14 Gigs' is not understood: write it like 14GiB"),
    "test_gpu_unknown": (ERROR, "limit_gpu_memory: GPU 'A100-41GB' is unknown"),
    "test_too_many_arguments": (ERROR, "limit_gpu_memory: it takes one limit such as '14 GiB', and the rest by name"),
    "test_argument_misspelt": (ERROR, "limit_gpu_memory: there is no argument 'off'. Did you mean of"),
    "test_nothing_inside": (FAIL, "limit_gpu_memory: nothing to measure: no model was called inside the block"),
    "test_no_training_inside": (FAIL, "limit_gpu_memory: nothing was trained inside the block: no backward pass"),
    "test_inference": (PASS, ""),
    "test_values_to_numpy": (FAIL, r"limit_gpu_memory: .*test_memory.py:\d+ reads a tensor's values with .numpy\(\)"),
    "test_values_of_a_loop": (PASS, ""),
    "test_own_assertion_fails": (FAIL, "assert "),
    "test_skipped_inside": (SKIP, "not today"),
    "test_fixture": (PASS, ""),
    "test_fixture_beyond": (FAIL, "MemoryLimitError: peak reserved is .* above the limit of 10.0 MiB on T4"),
    "test_two_blocks": (PASS, ""),
    "test_figures_too_early": (FAIL, "plan_memory: figures are there when the block has ended"),
    "test_fixture_gpu_unknown": (FAIL, "plan_memory: GPU 'A100-41GB' is unknown"),
    "test_nested": (FAIL, "plan_memory: a measured block stands inside another"),
    "test_real_afterwards": (PASS, ""),
}


@dataclass
class Run:
    text: str
    cases: dict

    def outcome(self, name):
        case = self.cases[name]
        found = next((child for child in case if child.tag in (FAIL, ERROR, SKIP)), None)
        return (PASS, "", "") if found is None else (found.tag, found.get("message", ""), found.text or "")

    def measured(self, name):
        properties = self.cases[name].iter("property")
        return [json.loads(item.get("value")) for item in properties if item.get("name") == "plan_memory"]


OTHERS = ("textual-snapshot", "syrupy", "hypothesispytest", "anyio")
"""Plugins of this environment that take longer to import than the library's tests to run."""


def launch(folder, *words):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    without = [word for name in ("cacheprovider", *OTHERS) for word in ("-p", f"no:{name}")]
    command = [sys.executable, "-m", "pytest", "--strict-markers", *without, *words]
    # The plugin comes by its entry point where the distribution is installed with it, and by name elsewhere.
    command += ["-p", "gpu_plan.executor.pytest_plugin"] if not _installed() else []
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1500, check=False
    )
    return done.stdout + done.stderr


def _installed():
    """As pytest looks for plugins: an environment from before the plugin has no entry point yet."""
    points = (point for distribution in distributions() for point in distribution.entry_points)
    return any(point.group == "pytest11" and point.name == "gpu_plan" for point in points)


def test_the_distribution_brings_the_plugin():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["pytest11"] == {"gpu_plan": "gpu_plan.executor.pytest_plugin"}


_NAME = "gpu_plan" if _installed() else "gpu_plan.executor.pytest_plugin"


@pytest.fixture(
    scope="module", params=[(), pytest.param(("-n", "2"), marks=pytest.mark.slow)], ids=["one process", "two workers"]
)
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("library")
    shutil.copy(LIBRARY / "nets.py", folder / "nets.py")
    shutil.copy(LIBRARY / "memory_cases.py", folder / "test_memory.py")
    (folder / "pytest.ini").write_text("[pytest]\njunit_family = xunit1\n")
    text = launch(folder, *request.param, "--junitxml", "junit.xml")
    cases = {case.get("name"): case for case in ET.parse(folder / "junit.xml").iter("testcase")}
    return Run(text=text, cases=cases)


def test_every_case_ends_as_it_should_with_one_clear_line(run):
    assert set(run.cases) == set(WANTED), run.text[-3000:]
    for name, (outcome, said) in WANTED.items():
        found, message, whole = run.outcome(name)
        assert found == outcome, (name, whole)
        assert re.search(said, f"{message}\n{whole}"), (name, message, whole)
        if found == ERROR or said.startswith(
            ("limit_gpu_memory: nothing", "plan_memory: ", "limit_gpu_memory: .*test")
        ):
            assert "Traceback" not in whole, whole
            assert len(whole.strip().splitlines()) == 1, whole


def test_a_limit_that_is_passed_names_what_stands_at_the_peak(run):
    _, _, whole = run.outcome("test_beyond")
    assert re.search(r"activations +Tower relu \[2048, 1024\] float32 x\d  nets.py:14", whole), whole
    assert re.search(r"optimizer_state +layers\.\*\.weight exp_avg", whole), whole
    assert "test_memory.py" not in whole, "the line is the library's"


def test_figures_travel_with_the_reports_and_are_summed_up(run):
    one, other = run.measured("test_two_blocks")
    assert one["peak_allocated_bytes"] < other["peak_allocated_bytes"]
    within = run.measured("test_within")[0]
    assert within["gpu"] == "A100"
    assert within["limit_bytes"] == 14 * 2**30
    assert sum(within["at_peak"].values()) == within["peak_allocated_bytes"]
    section = run.text.partition("= GPU memory =")[2].partition("short test summary")[0]
    lines = [line for line in section.splitlines() if line.startswith("test_memory.py::")]
    measured = ["test_within", "test_beyond", "test_beyond_in_bytes_of_the_device", "test_model_of_a_fixture",
                "TestOfAClass::test_method", "test_inference", "test_values_of_a_loop", "test_fixture",
                "test_fixture_beyond", "test_two_blocks"]  # fmt: skip
    assert {line.split(": ")[0].removeprefix("test_memory.py::") for line in lines} == set(measured), section
    assert all(
        re.search(r"peak allocated [\d.]+ [MG]iB, reserved [\d.]+ [MG]iB on (A100|T4) \(", line) for line in lines
    )
    assert section.count("\n    parameters ") == len(lines) == 11


def test_a_model_from_a_fixture_takes_what_one_made_inside_takes(run):
    outside, inside = run.measured("test_model_of_a_fixture")[0], run.measured("test_within")[0]
    assert outside["at_peak"] == inside["at_peak"]


def test_what_a_failing_test_was_told_of_values_stands_beside_it(run):
    assert "a value was read and not computed: " in run.text
    assert "test_own_assertion_fails -> False (the condition does not hold)" in run.text


def test_without_marker_and_fixture_nothing_is_imported(tmp_path):
    (tmp_path / "test_nothing.py").write_text(
        "import sys\n\ndef test_nothing():\n"
        "    ours = {name for name in sys.modules if name.partition('.')[0] == 'gpu_plan'}\n"
        "    few = {'gpu_plan', 'gpu_plan.version', 'gpu_plan.executor', 'gpu_plan.executor.pytest_plugin'}\n"
        "    assert ours <= few, ours\n"
        "    assert not {'torch', 'transformers', 'accelerate'} & set(sys.modules)\n"
    )
    text = launch(tmp_path)
    assert "1 passed" in text, text
    assert "GPU memory" not in text


@pytest.mark.slow
def test_no_option_is_registered_and_the_marker_explains_itself(tmp_path):
    without, with_plugin = launch(tmp_path, "--help", "-p", "no:" + _NAME), launch(tmp_path, "--help")
    options = re.compile(r"^ +(-[\w-]+)", re.MULTILINE)
    assert set(options.findall(with_plugin)) == set(options.findall(without))
    markers = launch(tmp_path, "--markers")
    assert '@pytest.mark.limit_gpu_memory(limit, gpu="A100-40GB", of="allocated", task="train")' in markers


@pytest.mark.slow
def test_the_example_passes(tmp_path):
    examples = Path(__file__).parents[2] / "examples" / "ci"
    shutil.copy(examples / "test_memory.py", tmp_path / "test_memory.py")
    text = launch(tmp_path)
    assert "2 passed" in text, text
    assert re.search(r"test_a_step_fits_the_small_a100: peak allocated 2\d\.\d GiB", text), text
