"""Every seeded bug is found on its line by its rule; good scripts and harmless changes bring nothing."""

import ast

import pytest

from gpu_plan.executor.doctor.rules import RULES
from gpu_plan.executor.doctor.script import examine_script
from gpu_plan.executor.script.read import Script
from tests.support.seeds import HARMLESS, SCRIPTS, SEEDS


def examine(source, name, intent=None):
    path = SCRIPTS / f"{name}.py"
    return examine_script(Script(path=path, source=source, tree=ast.parse(source)), intent)


def shown(findings):
    return [f"{finding.severity} {finding.id} {finding.place} {finding.what}" for finding in findings]


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"{seed.rule}-{seed.script}")
def test_a_seeded_bug_is_found_where_it_is(seed):
    source = seed.source()
    findings = examine(source, seed.script)
    lines = [source.splitlines()[finding.line - 1].strip() for finding in findings if finding.id == seed.rule]
    assert seed.at in lines, shown(findings)


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.py")), ids=lambda path: path.stem)
def test_good_scripts_bring_nothing(path):
    assert shown(examine(path.read_text(), path.stem)) == []


@pytest.mark.parametrize("seed", HARMLESS, ids=lambda seed: f"{seed.script}-{seed.at[:40]}")
def test_harmless_changes_bring_nothing(seed):
    assert shown(examine(seed.source(), seed.script)) == []


def test_every_rule_has_a_seeded_bug():
    assert {seed.rule for seed in SEEDS} == set(RULES)
