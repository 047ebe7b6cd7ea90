"""What TRL asks of weights that are not there."""

import types

import torch

from gpu_plan.planner.capture.answers.trl.hashed import _take


def test_a_model_without_values_is_hashed_by_its_shapes():
    utils = types.SimpleNamespace(hash_module=None)
    _take(utils)
    with torch.device("meta"):
        one, same, other = torch.nn.Linear(2**20, 2**12), torch.nn.Linear(2**20, 2**12), torch.nn.Linear(4, 4)
    assert utils.hash_module(one) == utils.hash_module(same) != utils.hash_module(other)
