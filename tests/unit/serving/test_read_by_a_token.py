"""What of a server's weights one step of decoding reads."""

from dataclasses import replace

from gpu_plan.planner.model.spec import ModelSpec, ParameterSpec
from gpu_plan.planner.serving.layers import Heads
from gpu_plan.planner.serving.weights import RankWeights, rank_weights


def test_experts_are_read_as_they_are_chosen() -> None:
    """32 experts of 3 bytes, 4 for each token, beside 100 bytes of which 10 are an embedding."""
    held = RankWeights(parameters=196, rotary=7, copies=0, looked_up=10, routed=96, share=4 / 32)
    assert held.read(1) == (102, 102, 102)
    assert held.read(2) == (102, 90 + round(96 * (1 - (28 / 32) ** 2)), 114)
    assert held.read(1000) == (102, 186, 186)


def test_a_dense_model_is_read_but_for_its_embedding() -> None:
    held = RankWeights(parameters=100, rotary=0, copies=0, looked_up=10)
    assert held.read(1) == held.read(64) == (90, 90, 90)


def test_which_weights_are_experts_and_which_an_embedding() -> None:
    shapes = {
        "model.embed_tokens.weight": (100, 8),
        "model.layers.0.mlp.gate.weight": (4, 8),
        "model.layers.0.mlp.experts.down_proj": (4, 8, 16),
        "model.layers.0.mlp.shared_experts.down_proj.weight": (8, 16),
        "lm_head.weight": (100, 8),
    }
    own = [ParameterSpec(name=name, shape=one, dtype="bfloat16", trainable=True) for name, one in shapes.items()]
    config = {"hidden_size": 8, "num_local_experts": 4, "num_experts_per_tok": 1, "intermediate_size": 16}
    spec = ModelSpec(
        id="m", class_name="M", config_class=None, model_type=None, kind="moe", parameters=tuple(own), num_parameters=0,
        trainable_parameters=0, max_positions=None, vocab_size=100, hidden_size=8, has_sequence=True,
    )  # fmt: skip
    held = rank_weights(spec, config, Heads(query=1, key_value=1, size=8), 1, 2)
    assert (held.routed, held.share) == (2 * 4 * 8 * 16, 0.25)
    assert held.looked_up == 2 * 128 * 8  # padded to a multiple of 64 words
    tied = replace(spec, parameters=(*own[:-1], replace(own[-1], tied_to=own[0].name)))
    assert rank_weights(tied, config, Heads(query=1, key_value=1, size=8), 1, 2).looked_up == 0
