"""The GPU benchmark's own code on a CPU: rows are written and valid, and the comparison reads them."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import compare_gpu, measure_gpu
from benchmarks.gpu.cases import Case, case_from, dry_groups, groups
from benchmarks.gpu.causes import causes, of_the_cpu, told
from benchmarks.gpu.memory import trimmed
from gpu_plan.planner.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "measure_gpu.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A measurement of the four tiny cases, made as a user makes it."""
    out = tmp_path_factory.mktemp("measured")
    command = [sys.executable, str(SCRIPT), "--device", "cpu", "--tiny", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=out, timeout=1500, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return out


@pytest.fixture(scope="module")
def rows(folder: Path) -> list[dict[str, Any]]:
    return compare_gpu.read_rows(folder)


@pytest.mark.slow
def test_every_case_has_a_row_with_phases(rows: list[dict[str, Any]]) -> None:
    cases = [row for row in rows if row["kind"] == "case"]
    assert [row["case"]["id"] for row in cases] == [case.id for case in groups(True)["tiny"]]
    for row in cases:
        assert row["status"] == "ok", row
        highest = max(peak["allocated"] for phase in row["phases"] for peak in phase["peaks"].values())
        assert row["peak"]["allocated"] == highest > row["phases"][-1]["at_rest"]["allocated"]
        assert row["phases"][-1]["at_rest"]["allocated"] >= row["parameter_bytes"] + row["state_bytes"]
        assert row["step_seconds"] > 0
    by_stack = {row["case"]["stack"]: row["loop"] for row in cases}
    assert by_stack == {"plain": "torch", "accelerate": "accelerate", "trainer": "accelerate"}
    assert rows[-1] == {"kind": "end", "measured": 4, "left_out": []}


@pytest.mark.slow
def test_memory_at_rest_settles(rows: list[dict[str, Any]]) -> None:
    for row in (row for row in rows if row["kind"] == "case"):
        first, last = row["phases"][0]["at_rest"]["allocated"], row["phases"][-1]["at_rest"]["allocated"]
        assert abs(last - first) <= 16, row["case"]["id"]


@pytest.mark.slow
def test_estimates_are_near_what_was_measured(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Each is reported as soon as it is known."""
    said: list[str] = []
    found = compare_gpu.compare(rows, said.append)
    assert len(said) == 4
    assert len(found["cases"]) == 4
    assert not found["without_comparison"]
    assert found["differences"] == []
    for line in found["cases"]:
        assert abs(line["peak_error"]) < 0.03, line
        assert abs(line["above_rest_error"]) < 0.02, line
    text = compare_gpu.markdown(found)
    assert all(line["id"] in text for line in found["cases"])


@pytest.mark.slow
def test_a_killed_run_is_read_up_to_its_last_whole_row(folder: Path, tmp_path: Path) -> None:
    content = (folder / "rows.jsonl").read_text()
    (tmp_path / "rows.jsonl").write_text(content[: content.index('"kind": "end"')])
    kept = compare_gpu.read_rows(tmp_path)
    assert [row["kind"] for row in kept] == ["run", "worker", "case", "case", "case", "case"]


@pytest.mark.parametrize(
    "content",
    [None, "", "{}\n", '{"kind": "run", "format": 99}\n', '{"kind": "run", "format": 1}\nnot json\n{}\n', "\x00\n"],
)
def test_a_folder_that_makes_no_sense_is_one_line(content: str | None, tmp_path: Path, capsys: Any) -> None:
    if content is not None:
        (tmp_path / "rows.jsonl").write_text(content)
    assert compare_gpu.main([str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_existing_measurement_is_not_overwritten(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "rows.jsonl").write_text("kept\n")
    assert measure_gpu.main(["--out", str(tmp_path), "--device", "cpu", "--tiny"]) == 2
    assert (tmp_path / "rows.jsonl").read_text() == "kept\n"
    assert "name another folder" in capsys.readouterr().err


def test_the_cases_are_about_sixty_distinct_and_read_back() -> None:
    cases = [case for made in groups(False).values() for case in made]
    assert 55 <= len(cases) <= 65
    assert len({case.id for case in cases}) == len(cases)
    assert sum(case.snapshot for case in cases) == 3
    for case in cases:
        assert case_from(json.loads(json.dumps(case.as_row()))) == case
        config = ROOT / "planner" / "model" / "catalog" / f"{case.model.replace('/', '--')}.json"
        assert config.is_file(), case.model
    with pytest.raises(ValueError, match="another version"):
        case_from({**cases[0].as_row(), "unknown": 1})


def test_a_dry_run_has_every_case_small() -> None:
    (dried,) = dry_groups(measure_gpu.config_of).values()
    whole = [case for made in groups(False).values() for case in made]
    assert [case.dry for case in dried] == [case.id for case in whole]
    assert len({case.id for case in dried}) == len(whole)
    for case in dried:
        sizes = dict(case.overrides)
        assert sizes["vocab_size"] == 512, case.id
        assert 2 in sizes.values(), case.id  # layers, under whatever name
        assert case_from(json.loads(json.dumps(case.as_row()))) == case


def test_what_a_cpu_does_otherwise_is_named_and_what_is_left_too() -> None:
    def line(*causes: dict[str, Any], **changes: Any) -> dict[str, Any]:
        case = Case(model="meta-llama/Llama-3.2-1B", seq_len=8, micro_batch=1, **changes)
        return {"case": case.as_row(), "causes": list(causes)}

    part = {"part": "step above rest", "bytes": 1, "look": ""}
    assert of_the_cpu([line(), line(optimizer="adamw-8bit")]) == []
    told = of_the_cpu([line(part, optimizer="adamw-8bit"), line(part, checkpointing="full"), line(part, peft="lora")])
    assert [text.rpartition(": ")[2] for text in told[:2]] == ["1 cases", "1 cases"]
    assert told[2] == "not explained by these: Llama-3.2-1B s8 b1 peft=lora"
    assert of_the_cpu([line(part, peft="qlora")])[0].startswith("peft asks whether CUDA's autocast is on")


def test_causes_name_the_parts_that_differ() -> None:
    line = {
        "predicted_standing": {"parameters": 100 << 20, "optimizer_state": 200 << 20},
        "predicted_at_rest": 300 << 20,
        "measured_at_rest": 280 << 20,
        "measured_peak": 400 << 20,
        "predicted_peak": 430 << 20,
        "predicted_reserved": 440 << 20,
        "measured_reserved": 410 << 20,
        "measured_outside": 700 << 20,
        "predicted_outside": {"low": 500 << 20, "expected": 550 << 20, "high": 600 << 20},
        "phases": {"forward": {"measured": 400 << 20, "predicted": 430 << 20}},
    }
    row = {"parameter_bytes": 100 << 20, "state_bytes": 180 << 20, "buffer_bytes": 0}
    found = {part["part"]: part["bytes"] >> 20 for part in causes(line, row)}
    expected = {"outside the allocator": -100, "optimizer state": 20, "forward above rest": 10}
    assert found == expected
    assert told(line, row).startswith("outside the allocator -100.00 MiB (")


def test_measuring_needs_nothing_of_planner() -> None:
    """The machine with the GPU has torch and transformers, not this package's other dependencies."""
    waiting, seen = [SCRIPT], set()
    while waiting:
        path = waiting.pop()
        seen.add(path)
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.partition(".")[0] in ("planner", "tests", "reports")], path
            inner = [ROOT / f"{name.replace('.', '/')}.py" for name in names if name.startswith("benchmarks.")]
            waiting += [path for path in inner if path not in seen]
    assert {path.stem for path in seen} == {"measure_gpu", "cases", "memory", "models", "loop"}


def test_an_oom_is_a_verdict_and_not_an_error() -> None:
    lines = [
        {"id": "a", "status": "oom", "verdict": "fits"},
        {"id": "b", "status": "oom", "verdict": "no"},
        {"id": "c", "status": "ok", "verdict": "no", "peak_error": -0.5},
    ]
    told = compare_gpu.summary(lines)
    assert (told["false_fits"], told["false_no"]) == (["a"], ["c"])
    assert told["peak_error"] == {"cases": 1, "median": 0.5, "p95": 0.5, "worst": 0.5}


def test_snapshots_keep_every_event_and_short_stacks() -> None:
    frames = [
        {"filename": "/home/me/lib/site-packages/torch/nn/modules/module.py", "line": 1, "name": "_call_impl"},
        {"filename": "/home/me/lib/site-packages/transformers/models/x.py", "line": 2, "name": "forward"},
    ]
    events = [{"action": "alloc", "addr": n, "size": 512, "stream": 0, "frames": list(frames)} for n in range(3)]
    segment = {"address": 0, "segment_pool_id": (0, 0), "blocks": [{"size": 512, "frames": list(frames)}]}
    short = trimmed({"segments": [segment], "device_traces": [events]})
    kept = short["device_traces"][0]
    assert [(event["addr"], event["size"]) for event in kept] == [(0, 512), (1, 512), (2, 512)]
    assert kept[0]["frames"] == [{"filename": "transformers/models/x.py", "line": 2, "name": "forward"}]
    assert kept[0]["frames"] is short["segments"][0]["blocks"][0]["frames"]
    assert short["segments"][0]["segment_pool_id"] == (0, 0)


def test_the_recorded_device_is_the_one_that_is_estimated() -> None:
    from benchmarks.gpu.estimates import cluster_of, profile_of

    gpu = {"name": "NVIDIA H200", "capability": [9, 0], "sm_count": 131, "total_bytes": 150_000_000_000}
    cluster = cluster_of(gpu)
    assert (cluster.capacity_bytes, cluster.gpu.sm_count, cluster.gpu.usable_basis) == (150_000_000_000, 131, "torch")
    assert profile_of(cluster, "math").name == "cuda-sm90x131"
    with pytest.raises(InputError, match="lacks a fact"):
        cluster_of({"name": "NVIDIA H200"})
    with pytest.raises(InputError):
        cluster_of({**gpu, "name": "Abacus 3000"})


@pytest.mark.slow
def test_a_case_without_an_estimate_costs_no_other(rows: list[dict[str, Any]]) -> None:
    unknown = {**groups(True)["tiny"][0].as_row(), "model": "nobody/nothing"}
    kept = [row for row in rows if row["kind"] != "case"]
    found = compare_gpu.compare([*kept, {"kind": "case", "case": unknown, "status": "ok"}])
    assert [other["status"] for other in found["without_comparison"]] == ["no estimate"]
    assert "no config for nobody/nothing" in found["without_comparison"][0]["reason"]


def test_a_case_tells_only_what_differs_from_the_default() -> None:
    case = Case(model="a/b", seq_len=8, micro_batch=2, peft="qlora", double_quant=True, grad_accum=2)
    assert case.id == "b s8 b2 peft=qlora double-quant accum=2"
