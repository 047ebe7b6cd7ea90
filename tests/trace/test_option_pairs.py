"""No option is silent: with every strategy it changes the document, is refused, or is named as without effect.

A fixed sample here; all pairs: `python -m benchmarks.sweeps.option_pairs`.
"""

import pytest

from gpu_plan.planner.options.settings import SETTINGS
from tests.support.option_pairs import NO_PAIR, OPTIONS, SETTING_VALUES, ending, pairs, write_models

SAMPLE = (
    "train zero2: zero.reduce_bucket_size=3000",
    "train fsdp: fsdp.reshard_after_forward=false",
    "train ddp: ddp.gradient_as_bucket_view=true",
    "train ddp: data.even_batches=false",
    "train ddp: zero.overlap_comm=true",
    "train zero1: zero.prefetch_bucket_size=3000",
    "train zero3: zero.pin_memory=false",
    "train fsdp: cache.implementation=static",
    "train fsdp: eval.accumulation_steps=2",
    "train single: new-tokens=8",
    "train single: data.even_batches=false",
    "train fsdp_tp: data.dispatch_batches=true",
    "train pp: data.seedable_sampler=true",
    "infer tp: compile.backend=inductor",
    "infer pp: zero.offload_param=none",
)
"""Some that change one thing each of the same step, and some of each refusal."""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("pairs"))


def test_every_option_and_setting_has_a_pair():
    found = list(pairs())
    assert {pair.option for pair in found} == {*OPTIONS, *SETTINGS}
    assert not set(OPTIONS) & set(NO_PAIR)
    assert set(SETTING_VALUES) == set(SETTINGS)
    labels = [pair.label for pair in found]
    assert len(set(labels)) == len(labels) > 1000


def test_a_sample_of_pairs_is_not_silent(models):
    plain_of: dict[str, str] = {}
    listed = {pair.label: pair for pair in pairs()}
    ends = [(ending(listed[label], models, plain_of)[0], label) for label in SAMPLE]
    assert [label for end, label in ends if end == "silent"] == []
    assert {end for end, _ in ends} >= {"changes", "refused", "named"}


@pytest.mark.slow
def test_no_pair_is_silent(models):
    plain_of: dict[str, str] = {}
    assert [pair.label for pair in pairs() if ending(pair, models, plain_of)[0] == "silent"] == []
