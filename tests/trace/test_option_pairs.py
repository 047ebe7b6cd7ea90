"""No option is silent: with every strategy it changes the document, is refused, or is named as without effect.

A fixed sample here; all pairs: `python -m benchmarks.option_pairs`.
"""

import json
import random

import pytest

from gpu_plan.planner.options.settings import SETTINGS
from tests.support.option_pairs import LLAMA, NO_PAIR, OPTIONS, SETTING_VALUES, ending, pairs

SAMPLE = 30


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs") / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    return folder


def test_every_option_and_setting_has_a_pair():
    found = list(pairs())
    assert {pair.option for pair in found} == {*OPTIONS, *SETTINGS}
    assert not set(OPTIONS) & set(NO_PAIR)
    assert set(SETTING_VALUES) == set(SETTINGS)
    labels = [pair.label for pair in found]
    assert len(set(labels)) == len(labels) > 1000


def test_a_sample_of_pairs_is_not_silent(model):
    plain_of: dict[str, str] = {}
    ends = [(ending(pair, model, plain_of)[0], pair.label) for pair in random.Random(14).sample(list(pairs()), SAMPLE)]
    assert [label for end, label in ends if end == "silent"] == []
    assert {end for end, _ in ends} >= {"changes", "refused"}


@pytest.mark.slow
def test_no_pair_is_silent(model):
    plain_of: dict[str, str] = {}
    assert [pair.label for pair in pairs() if ending(pair, model, plain_of)[0] == "silent"] == []
