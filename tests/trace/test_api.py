"""The Python API, sweeps, and every report of a real plan of a small model; one interpreter traces for all."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas
import pytest

import gpu_plan
from gpu_plan import plan, sweep
from gpu_plan.cli import main
from gpu_plan.planner.errors import InputError, UnreachableError, UsageError
from gpu_plan.planner.plan.document import from_json
from gpu_plan.planner.plan.files import load
from gpu_plan.planner.sweep.document import sweep_from_json

ROOT = Path(__file__).resolve().parents[2]
TINY = str(ROOT / "examples" / "tiny-llama")
JOB = {"seq_len": 64, "checkpointing": "none", "micro_batch": 4}
WORDS = ("--seq-len", "64", "--checkpointing", "none", "--micro-batch", "4")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """One cache for this module: each step is traced once."""
    before = os.environ["GPU_PLAN_CACHE"]
    os.environ["GPU_PLAN_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    os.environ["GPU_PLAN_CACHE"] = before


@pytest.fixture(scope="module")
def result():
    return plan(TINY, gpus="2xT4", **JOB)


def test_a_call_finds_what_the_command_line_finds(result, capsys) -> None:
    words = [TINY, "--gpus", "2xT4", *WORDS, "--json"]
    assert main(words) == 0
    printed = from_json(capsys.readouterr().out, "stdout")
    assert (printed.plans, printed.rejected) == (result.document.plans, result.document.rejected)
    assert printed.workload == result.document.workload
    assert result.fits
    assert result.best == printed.best


def test_frames_hold_the_documents_figures(result) -> None:
    frame = result.frame()
    document = result.document
    assert list(frame["rank"].dropna()) == list(range(1, len(document.plans) + 1))
    assert len(frame) == len(document.plans) + len(document.rejected)
    for row, candidate in zip(frame.to_dict("records"), document.plans, strict=False):
        assert row["strategy"] == candidate.strategy.name
        assert row["device_used_bytes"] == candidate.memory.device_used_bytes
        assert row["at_peak_activations"] == candidate.memory.at_peak.activations
        assert row["step_seconds"] == candidate.speed.step_seconds
    memory = result.memory_frame()
    for number, candidate in enumerate(document.plans, start=1):
        assert memory[memory["rank"] == number]["bytes"].sum() == candidate.memory.device_used_bytes


def test_reports_are_written_and_existing_files_are_kept(result, tmp_path) -> None:
    for name in ("a.html", "a.md", "a.csv", "a.json"):
        result.save(tmp_path / name)
        with pytest.raises(UsageError, match="force"):
            result.save(tmp_path / name)
    assert load(tmp_path / "a.json").plan == result.best
    assert len(pandas.read_csv(tmp_path / "a.csv")) == len(result.frame())
    assert result.document.model.id in (tmp_path / "a.html").read_text()
    with pytest.raises(InputError, match=r"\.json, \.html"):
        result.save(tmp_path / "a.xls")
    for kind in ("timeline", "breakdown", "pareto"):
        result.plot(kind, tmp_path / f"{kind}.svg")
        assert (tmp_path / f"{kind}.svg").read_bytes().startswith(b"<?xml")
    assert result._repr_html_() == result.document._repr_html_()


def test_a_sweep_plans_every_point_as_a_call_of_its_own_would(result) -> None:
    told: list[tuple[int, int]] = []
    swept = sweep(
        TINY, gpus="2xT4", over={"seq_len": [64, 32], "strategy": ["ddp", "fsdp"]}, checkpointing="none", micro_batch=4,
        progress=lambda done, of: told.append((done, of)),
    )  # fmt: skip
    assert [point.values for point in swept.points] == [("64", "ddp"), ("64", "fsdp"), ("32", "ddp"), ("32", "fsdp")]
    assert told == [(number, 4) for number in range(5)]
    alone = plan(TINY, gpus="2xT4", strategy="fsdp", **JOB)
    assert swept.points[1].plan == alone.best
    assert swept.documents[1] is not None
    assert swept.documents[1].plans == alone.document.plans
    assert list(swept.frame()["seq-len"]) == [64, 64, 32, 32]
    assert set(swept.frame()["strategy"]) == {"ddp", "fsdp"}
    assert "<svg" in (swept._repr_html_() or "")


def test_points_that_do_not_go_together_are_kept_with_the_reason() -> None:
    swept = sweep(
        TINY, gpus="2xT4", over={"strategy": ["ddp", "zero3"], "offload": ["none", "all"]}, **JOB,
    )  # fmt: skip
    verdicts = {point.values: point.verdict for point in swept.points}
    assert verdicts == {
        ("ddp", "none"): "fits",
        ("ddp", "all"): "refused",
        ("zero3", "none"): "fits",
        ("zero3", "all"): "fits",
    }
    assert "--offload all needs another --strategy" in (swept.document.point("ddp", "all").reason or "")


def test_clusters_and_settings_vary_too_and_nothing_fitting_is_a_verdict() -> None:
    over = {"gpus": ["1xT4", "4xH100"], "memory.reserve": ["0GiB", "14.5GiB"]}
    swept = sweep(TINY, over=over, pin=True, **JOB)
    assert [point.gpus for point in swept.points] == [1, 1, 4, 4]
    assert [point.verdict for point in swept.points] == ["fits", "no", "fits", "fits"]
    lost = swept.points[1]
    assert lost.plan is not None
    assert lost.reason
    assert lost.nearest_change is None


def test_without_the_users_cache_a_step_is_still_traced_once(tmp_path, monkeypatch) -> None:
    from gpu_plan.planner.trace.session import TracingSession

    traced: list[int] = []
    real = TracingSession.trace

    def counted(self, variant, micro_batch):
        traced.append(micro_batch)
        return real(self, variant, micro_batch)

    monkeypatch.setattr(TracingSession, "trace", counted)
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path / "untouched"))
    over = {"optimizer": ["adamw", "sgd"], "micro_batch": [2, 4]}
    swept = sweep(TINY, gpus="1xT4", over=over, pin=True, use_cache=False, seq_len=64, checkpointing="none")
    assert [point.verdict for point in swept.points] == ["fits"] * 4
    assert len(traced) == 1
    assert os.environ["GPU_PLAN_CACHE"] == str(tmp_path / "untouched")
    assert not (tmp_path / "untouched").exists()


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: plan(TINY, gpus="2xT4", seqlen=3), UsageError, "Did you mean seq_len"),
        (lambda: plan(TINY), UsageError, "which GPUs?"),
        (lambda: plan(TINY, gpus="2xT4", seq_len="much"), UsageError, "positive integer"),
        (lambda: plan(TINY, gpus="2xT4", settings=3), UsageError, "give a mapping"),
        (lambda: plan(TINY, gpus="2xT4", settings={"no.such": 1}), UsageError, "unknown setting"),
        (lambda: plan("nobody/has-this", gpus="2xT4"), UnreachableError, "nobody/has-this"),
        (lambda: plan(TINY, gpus="2xQ9"), InputError, "Q9"),
        (lambda: sweep(TINY, gpus="2xT4", over={}), UsageError, "needs values"),
        (lambda: sweep(TINY, gpus="2xT4", over={"seq_len": []}), UsageError, "empty"),
        (lambda: sweep(TINY, gpus="2xT4", over={"seq_len": "64"}), UsageError, "give a list"),
        (lambda: sweep(TINY, gpus="2xT4", over={"seq_len": [-1]}), UsageError, "positive integer"),
    ],
)
def test_errors_are_the_planners_own_in_one_line(call, error, says) -> None:
    with pytest.raises(error, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_the_command_line_writes_a_sweep_in_every_form(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    words = [TINY, "--gpus", "2xT4", "--sweep", "seq-len=32,64", "--sweep=strategy=ddp,fsdp", *WORDS[2:]]
    assert main([*words, "--json"]) == 0
    document = sweep_from_json(capsys.readouterr().out, "stdout")
    assert [point.verdict for point in document.points] == ["fits"] * 4
    assert (
        document.points[0].command
        == f"plan {TINY} --gpus 2xT4 --checkpointing none --micro-batch 4 --seq-len 32 --strategy ddp"
    )
    assert main([*words, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [int(row["device_used_bytes"]) for row in rows] == [
        point.plan.memory.device_used_bytes for point in document.points if point.plan and point.plan.memory
    ]
    assert main([*words, "--format", "html", "-o", "s.html", "--plot", "s.svg", "--plot", "curve:c.svg"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"s.html", "s.svg", "c.svg"}
    assert not capsys.readouterr().out
    for form in ("md", "text"):
        assert main([*words, "--format", form]) == 0
        assert "FITS" in capsys.readouterr().out


def test_a_page_of_a_plan_has_its_timeline_even_when_the_plan_was_kept(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = [TINY, "--gpus", "2xT4", *WORDS, "--format", "html"]
    assert main([*words, "-o", "a.html"]) == 0
    text = (tmp_path / "a.html").read_text()
    assert "One step" in text
    assert main([*words, "-o", "a.html", "--force"]) == 0
    again = (tmp_path / "a.html").read_text()
    assert again.replace(" --force", "") == text


@pytest.mark.slow
def test_a_page_of_a_plan_for_cpus_has_all_but_the_timeline(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([TINY, "--gpus", "2xcpu", "--seq-len", "64", "--format", "html", "-o", "cpu.html"]) == 0
    assert "One step" not in (tmp_path / "cpu.html").read_text()


@pytest.mark.slow
def test_scaling_and_sequence_plan_further_points(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    words = [TINY, "--gpus", "2xT4", "--seq-len", "64", "--checkpointing", "none"]
    assert main([*words, "--plot", "scaling:a.svg", "--plot", "sequence:b.svg"]) == 0
    scaling = (tmp_path / "a.svg").read_text()
    assert "number of GPUs (T4)" in scaling
    assert ">micro-batch<" in (tmp_path / "b.svg").read_text()


def test_importing_the_package_costs_nothing_and_the_call_needs_no_module_first(tmp_path) -> None:
    heavy = ("torch", "transformers", "pandas", "matplotlib", "gpu_plan.reports", "gpu_plan.executor", "numpy", "rich")
    code = (
        "import sys, gpu_plan\n"
        "light = list(sys.modules)\n"
        "from gpu_plan import plan, sweep\n"
        "named = list(sys.modules)\n"
        f"found = plan({TINY!r}, gpus='2xT4', seq_len=64, checkpointing='none', micro_batch=4)\n"
        "import json; print(json.dumps([sorted(light), named, found.best.strategy.name, callable(plan)]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=1500,
        check=True,
    )  # fmt: skip
    light, named, strategy, is_callable = json.loads(done.stdout.splitlines()[-1])
    assert not set(light) & set(heavy)
    assert not set(named) & set(heavy)
    assert is_callable
    assert strategy
    assert gpu_plan.sweep is sweep


@pytest.mark.slow
def test_the_example_runs(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "sweep.py"), TINY, "1xT4"], cwd=tmp_path, env=dict(os.environ),
        capture_output=True, text=True, timeout=1500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "activations" in done.stdout
    assert (tmp_path / "sweep.html").stat().st_size > 10_000
