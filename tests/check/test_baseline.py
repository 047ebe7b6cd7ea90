"""Baseline files: written the same way each time, refused in one line when they are not what was written."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.regression.baseline import Baseline, Standing, baseline_from_json, baseline_to_json
from gpu_plan.planner.regression.causes.culprits import culprits
from gpu_plan.planner.regression.compare import judge
from gpu_plan.planner.regression.computed import Computed, Fit
from gpu_plan.planner.regression.jobs import CheckJob
from gpu_plan.planner.regression.limits import parse_budget

GIB = 2**30


def baseline(
    peak=8 * GIB, *, standing=None, configuration=None, versions=None, figures=None, places=None, widened=None
):
    return Baseline(
        job="train",
        configuration={"workload.optimizer": "adamw", "strategy.micro_batch_size": 4, **(configuration or {})},
        figures={
            "peak_allocated_bytes": peak,
            "peak_reserved_bytes": peak + GIB,
            "at_peak.activations": peak,
            "step_microseconds": 1000,
            **(figures or {}),
        },
        phase_of_peak="backward",
        standing=standing or {"activations | head | mm | train.py | logits = head(x)": peak},
        verdict="fits",
        versions=versions or {"torch": "2.13.0", "transformers": "5.22.0"},
        places=places or {},
        widened=widened or {},
    )


def test_one_line_for_each_figure_and_sorted_keys():
    text = baseline_to_json(baseline())
    value = json.loads(text)
    assert list(value) == sorted(value)
    assert list(value["figures"]) == sorted(value["figures"])
    assert '    "peak_allocated_bytes": 8589934592,\n' in text
    assert text.endswith("}\n")
    assert baseline_from_json(text, ".plan/train.json", "train") == baseline()
    assert baseline_to_json(baseline_from_json(text, ".plan/train.json", "train")) == text


TEXT = baseline_to_json(baseline())


def line_of(key):
    return next(number for number, line in enumerate(TEXT.splitlines(), 1) if f'"{key}"' in line)


TORN = TEXT.replace('  "job": "train",\n', '<<<<<<< HEAD\n  "job": "train",\n=======\n  "job": "other",\n>>>>>>> b\n')


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (TORN, line_of("job"), "torn by a merge conflict"),
        (TEXT[: len(TEXT) // 2], None, "not complete JSON"),
        ("", 1, "not complete JSON"),
        ("[]", 1, "not a baseline of `plan check`"),
        (TEXT.replace('"schema_version": 1', '"schema_version": 7'), line_of("schema_version"), "schema_version is 7"),
        (TEXT.replace("8589934592", "8589934593", 1), line_of("digest"), "it was edited by hand"),
        (TEXT.replace('"phase_of_peak": "backward"', '"phase_of_peak": 3'), line_of("phase_of_peak"), "not a string"),
        (
            TEXT.replace('"document": "check-baseline"', '"document": "saved-plan"'),
            line_of("document"),
            "not a baseline",
        ),
    ],
)
def test_what_update_did_not_write_is_one_line_with_its_place(text, line, said):
    with pytest.raises(InputError, match=said) as problem:
        baseline_from_json(text, ".plan/train.json", "train")
    shown = str(problem.value)
    assert "\n" not in shown
    assert shown.startswith(".plan/train.json:" if line is None else f".plan/train.json:{line}: ")
    assert shown.endswith("make it again with `plan check --update train`")


def test_the_baseline_of_another_job_is_refused():
    with pytest.raises(InputError, match="the baseline of 'train'"):
        baseline_from_json(TEXT, ".plan/other.json", "other")


_WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\n|"), max_size=12).map(str.strip)


@given(_WORDS, _WORDS, _WORDS, _WORDS)
def test_what_stands_is_read_back_from_its_key(module, operator, file, text):
    standing = Standing(category="activations", module=module, operator=operator, file=file, text=text)
    assert Standing.of_key(standing.key()) == standing


# -- comparison -------------------------------------------------------------------------------------------------


def job(**values):
    from pathlib import Path

    given = {"name": "train", "path": Path("pyproject.toml"), "line": 3, "model": "train.py", "gpus": "1xA100-40GB"}
    return CheckJob(**{**given, "options": {}, "lines": {"budget": 5}, **values})


def now(state, **values):
    return Computed(state=state, **values)


def messages(judged, kind=None):
    return [finding.message for finding in judged.findings if kind in (None, finding.kind)]


def test_nothing_changed_is_ok_and_says_nothing():
    judged = judge(job(), now(baseline()), baseline())
    assert judged.status == "ok"
    assert judged.findings == ()
    assert all(figure.change == 0 for figure in judged.figures)


def test_growth_names_the_line_that_takes_it():
    key = "activations | head | _to_copy | train.py | logits = head(x).float()"
    after = baseline(9 * GIB, standing={"activations | head | mm | train.py | logits = head(x)": 8 * GIB, key: GIB})
    judged = judge(job(), now(after, lines={key: 88}), baseline())
    assert judged.status == "fail"
    first = judged.findings[0]
    assert (first.level, first.kind, first.file, first.line) == ("error", "growth", "train.py", 88)
    assert "8.0 GiB -> 9.0 GiB (+1.0 GiB, +12.5%), beyond fail = '5%'" in first.message
    assert "+1.0 GiB activations: `logits = head(x).float()` in train.py:88 (head _to_copy)" in first.message


def test_growth_below_fail_warns_and_below_warn_is_silent():
    assert judge(job(), now(baseline(round(8.2 * GIB))), baseline()).status == "warn"
    assert judge(job(), now(baseline(8 * GIB + 2**20)), baseline()).status == "ok"


def test_less_memory_is_no_alarm():
    assert judge(job(), now(baseline(4 * GIB)), baseline()).status == "ok"


def test_budgets_hold_without_a_baseline():
    budgets = (parse_budget("fits 1xT4"), parse_budget("peak <= 6 GiB"), parse_budget("reserved <= 20 GiB"))
    fits = {"1xT4": Fit(verdict="tight", used_high_bytes=15 * GIB, capacity_bytes=14 * GIB)}
    judged = judge(job(budgets=budgets), now(baseline(), fits=fits), None)
    assert judged.status == "fail"
    assert messages(judged, "budget") == [
        "train is tight on 1xT4: up to 15.0 GiB of 14.0 GiB usable",
        "peak allocated is 8.0 GiB, over the budget 'peak <= 6 GiB' by 2.0 GiB",
    ]
    assert {finding.line for finding in judged.findings if finding.kind == "budget"} == {5}
    assert judge(job(), now(baseline()), None).status == "new"


def test_changed_inputs_and_versions_are_told():
    after = baseline(
        configuration={"workload.optimizer": "sgd"}, versions={"torch": "2.13.0", "transformers": "5.23.0"}
    )
    judged = judge(job(lines={"optimizer": 9}), now(after), baseline())
    assert judged.status == "ok"
    assert messages(judged, "input") == [
        "workload.optimizer: adamw -> sgd",
        "version of transformers: 5.22.0 -> 5.23.0",
    ]
    assert judged.findings[0].line == 9


def test_a_step_that_takes_longer_informs():
    judged = judge(job(), now(baseline(figures={"step_microseconds": 2000})), baseline())
    assert judged.status == "ok"
    assert messages(judged) == ["expected step time 0.001 -> 0.002 s (+100.0%), for information"]


def test_host_memory_is_judged():
    before, after = baseline(figures={"host.most_bytes": GIB}), baseline(figures={"host.most_bytes": 2 * GIB})
    judged = judge(job(), now(after), before)
    assert judged.status == "fail"
    assert judged.findings[0].message.startswith("RAM of a node 1.0 GiB -> 2.0 GiB")


def test_what_was_renamed_or_moved_nets_out():
    before = {"activations | old.mlp | mul | model.py | y = a * b": 5, "activations | x | mm | a.py | f(x)": 7}
    after = {"activations | new.mlp | mul | model.py | y = a * b": 5, "activations | x | mm | b.py | g(x)": 7}
    assert culprits(before, after, {}) == ()


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9)),
    st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9)),
)
def test_culprits_account_for_the_whole_change(before, after):
    first = {f"activations | {name} | {name}": size for name, size in before.items()}
    second = {f"activations | {name} | {name}": size for name, size in after.items()}
    found = culprits(first, second, {})
    assert sum(culprit.change for culprit in found) == sum(after.values()) - sum(before.values())
    assert [abs(culprit.change) for culprit in found] == sorted((abs(c.change) for c in found), reverse=True)


# -- the line that is annotated ----------------------------------------------------------------------------------


def grown(*, standing=None, lines=None, configuration=None, jobs=None):
    """The growth's finding of a job that takes 2 GiB more than its baseline."""
    configuration = {"workload.optimizer": "adamw", **(configuration or {})}
    after = baseline(10 * GIB, standing={LOGITS: 8 * GIB, **(standing or {})}, configuration=configuration)
    judged = judge(job(lines=jobs or {}), now(after, lines=lines or {}), baseline())
    assert judged.findings[0].kind == "growth"
    return judged.findings[0]


LOGITS = "activations | head | mm | train.py | logits = head(x)"
OURS, THEIRS = "activations | head | _to_copy | train.py | logits.float()", "activations | layers.* | mm |  | "


def test_growth_that_no_line_makes_is_pinned_to_none():
    found = grown(standing={THEIRS: 2 * GIB})
    assert (found.file, found.line) == (None, None)
    assert "; +2.0 GiB activations: layers.* mm" in found.message


def test_growth_without_a_line_stands_at_the_one_input_that_changed():
    found = grown(
        standing={THEIRS: 2 * GIB}, configuration={"workload.optimizer": "adamw-8bit"}, jobs={"optimizer": 9, "gpus": 4}
    )
    assert (found.file, found.line) == ("pyproject.toml", 9)
    assert "workload.optimizer: adamw -> adamw-8bit; the largest part: +2.0 GiB activations" in found.message


def test_of_several_changed_inputs_none_is_picked():
    found = grown(
        standing={THEIRS: 2 * GIB},
        configuration={"workload.optimizer": "sgd", "workload.seq_len": 4096},
        jobs={"optimizer": 9, "seq-len": 10},
    )
    assert (found.file, found.line) == (None, None)
    assert "changed were workload.optimizer: adamw -> sgd, workload.seq len: " in found.message


def test_of_two_causes_the_words_are_those_of_the_line():
    found = grown(standing={THEIRS: GIB + GIB // 2, OURS: GIB // 2}, lines={OURS: 88})
    assert (found.file, found.line) == ("train.py", 88)
    assert (
        "; +512.0 MiB activations: `logits.float()` in train.py:88 (head _to_copy); the largest part: +1.5 GiB"
        in found.message
    )


def test_a_nodes_ram_is_not_explained_by_what_stands_on_devices():
    figures = {"host.most_bytes": 4 * GIB}
    after = baseline(9 * GIB, standing={LOGITS: 8 * GIB, OURS: GIB}, figures={"host.most_bytes": 8 * GIB})
    judged = judge(job(), now(after, lines={OURS: 88}), baseline(figures=figures))
    ram = next(finding for finding in judged.findings if finding.message.startswith("RAM of a node"))
    assert (ram.file, ram.line) == (None, None)
    assert ram.message.endswith("beyond fail = '5%'")
