"""Lines of transformers' classes that ask whether a layer overflowed fp16."""

import pytest

from gpu_plan.planner.trace.recording.host_read_policies import overflow_policy

BART = "transformers.models.bart.modeling_bart"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("if hidden_states.dtype == torch.float16 and not torch.isfinite(hidden_states).all():", True),
        ("if hidden_states.dtype == torch.float16 and torch.isinf(hidden_states).any():", False),
    ],
)
def test_values_are_finite(line: str, value: bool) -> None:
    policy = overflow_policy(BART, line)
    assert policy is not None
    assert (policy.value, policy.assumes) == (value, "activations do not overflow fp16")


def test_other_lines_are_no_guess() -> None:
    assert overflow_policy(BART, "if hidden_states.sum().item() > 0:") is None
    assert overflow_policy("mine", "if torch.isinf(hidden_states).any():") is None
