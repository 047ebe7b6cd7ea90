"""Seeded regressions are caught with the right culprit, harmless changes raise no alarm.

Each is a real patch to one of two real projects, checked as a shell would: the script captured, the factory or config
traced. A fixed sample runs always, all of them with `make prove`; benchmarks.sweeps.check_regressions writes results.
"""

import shutil

import pytest

from tests.check.seeds import HARMLESS, PROJECTS, REGRESSIONS, apply, copy, missing, plan_check, report_of
from tests.support.sample import sample

QUICK_REGRESSIONS = [
    ("tinygpt/regress-upcast-logits", "train"),
    ("tinygpt/regress-checkpointing", "backbone"),
]
QUICK_HARMLESS = (
    "harmless-docstrings",
    "harmless-frozen-dataclass",
    "harmless-learning-rate",
    "harmless-move-loss-to-file",
    "harmless-readme",
    "harmless-tests-added",
)
"""Of tinygpt; they touch different files, so that one run checks them all."""


class Bases:
    """Projects with the baselines of what they are before any patch, each made once."""

    def __init__(self, place):
        self.place, self.made = place, {}

    def of(self, project, *names):
        if (project, names) not in self.made:
            root = copy(project, self.place / f"{project}-{'-'.join(names)}")
            done = plan_check(root, self.place / "cache", "--update", "--format", "json", *names)
            assert done.returncode == 0, done.stderr + done.stdout
            self.made[project, names] = root
        return self.made[project, names]

    def checked(self, changes, *names):
        """The patched project, and what `plan check` says of it."""
        project = changes[0].project
        base = self.of(project, *names)
        root = copy(project, self.place / f"{changes[0]}-{'-'.join(names)}".replace("/", "-"))
        shutil.copytree(base / ".plan", root / ".plan")
        for change in changes:
            apply(root, change.path.read_text(encoding="utf-8"))
        done = plan_check(root, self.place / "cache", "--format", "json", *names)
        return root, done, report_of(done)


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    return Bases(tmp_path_factory.mktemp("check"))


def quick_change(name):
    return next(change for change in REGRESSIONS if str(change) == name)


@pytest.mark.parametrize(("name", "job"), sample(QUICK_REGRESSIONS, kept=QUICK_REGRESSIONS[:1]))
def test_a_sample_of_the_regressions(name, job, bases):
    change = quick_change(name)
    root, done, report = bases.checked([change], job)
    assert done.returncode == 1
    assert missing(change, root, report, (job,)) == [], done.stdout


@pytest.mark.slow
def test_a_sample_of_the_harmless_changes(bases):
    quick = [change for change in HARMLESS if change.project == "tinygpt" and change.name in QUICK_HARMLESS]
    assert len(quick) == len(QUICK_HARMLESS)
    _, done, report = bases.checked(quick, "train")
    assert (done.returncode, report["status"]) == (0, "ok"), done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("change", REGRESSIONS, ids=str)
def test_a_regression_is_caught_with_its_culprit(change, bases):
    root, done, report = bases.checked([change], *change.jobs)
    assert report["status"] in ("warn", "fail")
    assert done.returncode == (1 if report["status"] == "fail" else 0)
    assert missing(change, root, report) == [], done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("change", HARMLESS, ids=str)
def test_a_harmless_change_raises_no_alarm(change, bases):
    _, done, report = bases.checked([change], *change.jobs)
    assert (done.returncode, report["status"]) == (0, "ok"), done.stdout


def test_what_is_seeded():
    assert len(HARMLESS) >= 40
    assert {change.project for change in REGRESSIONS} == set(PROJECTS) == {change.project for change in HARMLESS}
    kinds = ("upcast-logits", "checkpointing", "optimizer-fp32", "retained-graph", "vocabulary-padding", "second-model")
    for kind in kinds:
        assert any(change.name == f"regress-{kind}" for change in REGRESSIONS), kind
