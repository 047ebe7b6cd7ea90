"""Whose loss causal language models compute: values of `--set loss.variant`, and of `loss` in a job document."""

INSTALLED_LOSS = "installed"
"""That of the installed transformers."""
OLDER = ("transformers-4.48", "transformers-4.45")
STACKS = ("trl-1.16", "torchtune-0.7", "litgpt-0.5")
CACHED = "open-instruct"
"""Of a policy whose reference was asked before."""
GATHERED = "open-instruct-grpo"
"""Of its policies that roll out: a compiled log-softmax."""
PAIRED, UNREFERRED = "llamafactory-v1", "llamafactory-v1-alone"
"""Of LLaMA-Factory v1's pairs: with its reference's logits between the policy's two passes, and without."""
VALUED = "trl-0.9-ppo"
"""Of a policy with a value head on its own trunk, as LLaMA-Factory runs TRL's PPO."""
POLICIES = (
    "verl-0.8", "verl-0.8-entropy", "verl-0.8-fused", "openrlhf-0.11", CACHED, GATHERED, PAIRED, UNREFERRED, VALUED,
)  # fmt: skip
"""Log-probabilities as trainers of policies take them."""
SMOOTHED = "trainer-smoothed"
"""That of transformers' Trainer with `label_smoothing_factor`."""
LOSSES = (INSTALLED_LOSS, *OLDER, *STACKS, *POLICIES, SMOOTHED)
