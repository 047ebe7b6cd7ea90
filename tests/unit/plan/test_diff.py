"""`plan diff`: every difference, signed figures, and one line for what is no plan."""

import json
from dataclasses import replace

import pytest

from gpu_plan.cli import main
from gpu_plan.planner.plan.diff import compare, side_of_document, side_of_saved
from gpu_plan.planner.plan.document import Assumption, to_json
from gpu_plan.planner.plan.files import save
from gpu_plan.planner.plan.saved import saved_plan
from gpu_plan.reports.diff import render_json, render_text
from tests.support.plan_example import llama_on_8xh100, nothing_fits


@pytest.fixture
def files(tmp_path):
    """Writes documents (as --json) and saved plans (as --save); gives their paths."""

    def write(**plans):
        paths = []
        for name, plan in plans.items():
            path = tmp_path / f"{name}.json"
            if hasattr(plan, "plans"):
                path.write_text(to_json(plan))
            else:
                save(plan, path)
            paths.append(str(path))
        return paths

    return write


@pytest.fixture
def diff(capsys):
    def run(*words):
        code = main(["diff", *words])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def sides(first, second):
    return tuple(side_of_document(document, name, document.best) for name, document in (("a", first), ("b", second)))


def other_candidate():
    document = llama_on_8xh100()
    return replace(document, plans=document.plans[2:])


def test_a_plan_equals_itself_however_it_was_written(files, diff):
    document = llama_on_8xh100()
    paths = files(printed=document, saved=saved_plan(document))
    for pair in (paths, paths[::-1], [paths[0]] * 2):
        code, out, err = diff(*pair)
        assert (code, err) == (0, "")
        assert out.endswith("No difference.\n")
        assert json.loads(diff(*pair, "--json")[1])["same"] is True


def test_every_input_that_differs_is_named():
    document = llama_on_8xh100()
    changed = replace(
        document,
        model=replace(document.model, vocab_size=1, max_positions=None),
        cluster={**document.cluster, "nodes": 2, "intra_node": {"link": "PCIe"}},
        workload={
            **document.workload,
            "seq_len": 77,
            "basis": {**document.workload["basis"], "seq_len": "given", "optimizer": "given"},
        },
        created_with={**document.created_with, "torch": "2.99"},
        assumptions=(Assumption(text="other", basis="assumed"),),
    )
    found = compare(*sides(document, changed))
    named = {(entry.section, entry.key): (entry.before, entry.after) for entry in found.differences}
    assert named == {
        ("model", "vocab_size"): (128256, 1),
        ("model", "max_positions"): (131072, None),
        ("cluster", "nodes"): (1, 2),
        ("cluster", "intra_node.link"): ("NVLink 4 + NVSwitch", "PCIe"),
        ("cluster", "intra_node.bytes_per_s"): (450_000_000_000, None),
        ("cluster", "intra_node.basis"): ("source", None),
        ("workload", "seq_len"): (document.workload["seq_len"], 77),
        ("versions", "torch"): ("2.13.0", "2.99"),
    }
    assert not found.same
    back = compare(*sides(changed, document))
    assert {(e.section, e.key): (e.after, e.before) for e in back.differences} == named


def test_memory_and_speed_have_signed_changes():
    first, second = llama_on_8xh100(), other_candidate()
    found = compare(*sides(first, second))
    memory = {figure.name: figure for figure in found.memory}
    before, after = first.best.memory, second.best.memory
    for name, size in before.at_peak.items().items():
        figure = memory[f"at_peak.{name}"]
        assert (figure.before, figure.after) == (size, after.at_peak.items()[name])
    whole = memory["peak_allocated_bytes"]
    assert sum(f.change for f in found.memory if f.name.startswith("at_peak.")) == whole.change < 0
    assert memory["outside_allocator.nccl"].change == 0
    speed = {figure.name: figure for figure in found.speed}
    assert speed["step_seconds"].change == pytest.approx(9.31 - 7.24)
    assert {"parts.compute", "parts.communication", "mfu"} <= set(speed)
    strategy = {entry.key for entry in found.differences if entry.section == "strategy"}
    assert strategy == {"micro_batch_size", "gradient_accumulation_steps", "checkpointing"}


def test_a_side_without_memory_or_candidate_has_no_figures():
    document = llama_on_8xh100()
    refused = document.rejected[-1]
    found = compare(side_of_document(document, "a", document.best), side_of_document(document, "b", refused))
    assert all(figure.after is None and figure.change is None for figure in found.memory)
    assert ("plan", "verdict", "fits", "no") in {(e.section, e.key, e.before, e.after) for e in found.differences}
    empty = side_of_document(document, "b", None)
    text = render_text(compare(empty, empty), empty, empty)
    assert "no plan was evaluated" in text
    assert "No difference." in text


def test_tensors_are_compared_where_both_sides_name_them():
    document = llama_on_8xh100()
    best = document.best
    larger = replace(best.explain[1], bytes=3 * best.explain[1].bytes)
    changed = replace(document, plans=(replace(best, explain=(best.explain[0], larger)), *document.plans[1:]))
    found = compare(*sides(document, changed))
    assert [(t.module, t.before, t.after) for t in found.tensors] == [
        ("model.layers.*", best.explain[1].bytes, larger.bytes),
        ("model.embed_tokens", best.explain[2].bytes, None),
    ]
    assert "2.0 GiB -> 6.0 GiB" in render_text(found, *sides(document, changed))
    silent = replace(document, plans=(replace(best, explain=None), *document.plans[1:]))
    assert compare(*sides(document, silent)).tensors is None
    assert compare(*sides(document, silent)).same


def test_text_shows_both_plans_and_is_ascii_when_asked(files, diff):
    first, second = files(a=saved_plan(llama_on_8xh100()), b=other_candidate())
    code, out, _ = diff(first, second)
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("before")
    assert "FITS  meta-llama/Llama-3.1-8B: FSDP2" in lines[0]
    row = next(line for line in lines if line.startswith("  activations"))
    assert row.split() == ["activations", "31.5", "GiB", "20.1", "GiB", "-11.4", "GiB", "(-36.3%)"]
    assert any("checkpointing" in line and "none -> full" in line for line in lines)
    unchanged = next(line for line in lines if line.startswith("  NCCL"))
    assert unchanged.split() == ["NCCL", "1.0", "GiB", "1.0", "GiB"]
    assert "·" in out
    assert diff(first, second, "--ascii")[1].isascii()


def test_when_nothing_fits_the_nearest_miss_is_compared(files, diff):
    first, second = files(a=llama_on_8xh100(), b=nothing_fits())
    code, out, _ = diff(first, second)
    assert code == 0
    assert "OOM  meta-llama/Llama-3.1-8B" in out
    assert "fits -> no" in out


def test_json_is_stable_and_whole(files, diff):
    first, second = files(a=llama_on_8xh100(), b=other_candidate())
    code, out, _ = diff(first, second, "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["schema_version"], found["document"], found["same"]) == (1, "plan-diff", False)
    assert (found["before"], found["after"]) == (first, second)
    peak = next(figure for figure in found["memory"] if figure["name"] == "peak_allocated_bytes")
    assert peak["change"] == peak["after"] - peak["before"]
    assert out == diff(first, second, "--json")[1]
    assert out.rstrip("\n") == render_json(
        replace(compare(*sides(llama_on_8xh100(), other_candidate())), before=first, after=second)
    )


def test_terminal_sequences_from_a_file_are_not_shown(files, diff):
    document = llama_on_8xh100()
    evil = replace(document, model=replace(document.model, id="a\x1b[31mb\nc", class_name="\x1b]0;t\x07X"))
    _, out, _ = diff(*files(a=document, b=evil))
    assert "\x1b" not in out
    assert r"a\x1b[31mb c" in out


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        (None, 3, "there is no plan"),
        (b"", 2, "bad.json"),
        (b"\x80\x04]\x94.", 2, "UTF-8"),
        (b"[1]", 2, "bad.json"),
        (b'{"schema_version": 1}', 2, "bad.json"),
        (b'{"schema_version": 99}', 2, "schema_version is 99"),
        (b'{"schema_version": 1, "document": "plan-diff"}', 2, "bad.json"),
        (b'{"document": "saved-plan", "schema_version": 1}', 2, "bad.json"),
    ],
)
def test_what_is_no_plan_is_one_line(files, diff, tmp_path, content, code, said):
    (good,) = files(a=llama_on_8xh100())
    bad = tmp_path / "bad.json"
    if content is not None:
        bad.write_bytes(content)
    for pair in ((good, str(bad)), (str(bad), good)):
        found, out, err = diff(*pair)
        assert (found, out) == (code, "")
        assert err.count("\n") == 1
        assert said in err


def test_a_saved_side_keeps_its_versions():
    saved = saved_plan(llama_on_8xh100())
    assert side_of_saved(saved, "x").versions == saved.created_with
