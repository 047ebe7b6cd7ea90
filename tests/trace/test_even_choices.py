"""What even choices of experts are: every expert as often as the others, and every rank's as often as another's."""

import pytest
import torch

from gpu_plan.planner.trace.parallel.experts import even_choices


@pytest.mark.parametrize(("tokens", "each", "experts", "own"), [(64, 2, 8, 4), (64, 8, 128, 2), (12, 3, 12, 3)])
def test_every_expert_is_chosen_as_often_as_the_others(tokens: int, each: int, experts: int, own: int) -> None:
    chosen = even_choices(torch.empty(tokens, each), experts, own)
    assert torch.equal(
        torch.bincount(chosen.flatten(), minlength=experts).unique(), torch.tensor([tokens * each // experts])
    )
    assert all(len(set(of_token)) == each for of_token in chosen.tolist()), "a router chooses an expert once a token"


def test_with_fewer_choices_than_experts_no_rank_gets_all() -> None:
    """Bailing's own 512 experts over two ranks: 160 choices were all the first rank's, and the second got none."""
    chosen = even_choices(torch.empty(80, 2), 512, 256)
    assert torch.equal(torch.bincount(chosen.flatten() // 256), torch.tensor([80, 80]))
    assert len(chosen.unique()) == 160
