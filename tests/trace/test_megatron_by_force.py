"""The search over Megatron-core's layouts gives the plan that comes first of all of them, though it traces few.

Brute force is the same search with nothing left out by a bound: every layout traced that no rule sets aside, every
micro batch evaluated.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpu_plan.planner.search.ranking.rules import Ranking, standing
from gpu_plan.planner.search.search import search
from gpu_plan.planner.search.training.candidates import Family
from gpu_plan.planner.search.training.evaluate import StepJudgement
from gpu_plan.planner.search.training.least.megatron import again_at_least, uncalled_for
from gpu_plan.planner.search.training.task import TrainingTask
from gpu_plan.planner.workload.prefer import Prefer
from tests.trace.test_degrees_by_force import first, task_of

SMALL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 1024, "hidden_size": 512,
    "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4,
    "max_position_embeddings": 2048,
}  # fmt: skip
LARGE = {
    **SMALL, "vocab_size": 32000, "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40,
    "num_attention_heads": 40, "num_key_value_heads": 40, "max_position_embeddings": 8192,
}  # fmt: skip
"""13B: without recomputation some of its layouts fit and others do not."""
EXPERTS = {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "vocab_size": 1024, "hidden_size": 2048,
    "intermediate_size": 4096, "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 4,
    "num_local_experts": 4, "max_position_embeddings": 4096,
}  # fmt: skip
SPACES = {
    "small, 2 H100": (SMALL, "2xH100", 256),
    "small, 2 nodes of 2 A100": (SMALL, "2x2xA100", 256),
    "13B, 4 H100": (LARGE, "4xH100", 4096),
    "13B, 4 H200, long": (LARGE, "4xH200", 8192),
    "experts, 4 A100": (EXPERTS, "4xA100-80GB", 4096),
}


class Everything(TrainingTask):
    """The same job, with no layout left out by a bound."""

    def hopeless(self, family: Family, ranking: Ranking, plans: Sequence[StepJudgement]) -> str | None:
        return uncalled_for(self.evaluator, family, plans)


@pytest.mark.slow
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("prefer", [Prefer.BALANCE, Prefer.SPEED])
def test_spaces_of_layouts_give_the_plan_of_brute_force(tmp_path: Path, space: str, prefer: Prefer) -> None:
    config, gpus, length = SPACES[space]
    given: dict[str, Any] = {"strategy": "megatron", "global_batch": 16, "seq_len": length}
    ours = search(task_of(TrainingTask, tmp_path, config, gpus, **given), prefer=prefer)
    every = search(task_of(Everything, tmp_path, config, gpus, **given), prefer=prefer)
    assert first(ours) == first(every)
    assert ours.explored <= every.explored
    _holds(every.plans, Ranking(prefer=prefer))


def _holds(plans: Sequence[StepJudgement], ranking: Ranking) -> None:
    """No layout that computes every layer once more is faster than it is said to be at least."""
    fits = [(plan, plan.family.layout) for plan in plans if plan.family.layout is not None and standing(plan) == 0]
    plain = [plan for plan, layout in fits if layout.recompute == "none"]
    for plan, layout in fits:
        if plain and layout.recompute == "full":
            assert ranking.expected(plan) >= again_at_least(layout, ranking, plain), plan.title
