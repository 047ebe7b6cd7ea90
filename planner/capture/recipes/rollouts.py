"""What GRPO's and RLOO's scripts share: a rollout of the asked lengths, rewards, and an engine that is not there."""

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any
from unittest import mock

from gpu_plan.planner.capture.recipes.parts import Job, parsed

Reward = Callable[..., list[float]]


class RolloutJob(Job):
    """A job whose completions are generated before they are trained on."""

    def rollout_arguments(self) -> dict[str, Any]:
        """What a config of a trainer that rolls out is given; the rest is its default."""
        given = self.given
        found = self.arguments(
            num_generations=self._group,
            max_completion_length=given.completion_len,
            use_vllm=given.engine != "none",
        )
        del found["max_length"]
        if given.beta is not None:
            found["beta"] = given.beta
        if given.engine != "none":
            found["vllm_mode"] = given.engine
        return found

    @property
    def _group(self) -> int:
        """Generations of a prompt that a lone rank's batch holds whole: several ranks may share a group."""
        rows = int(self.given.batch) * int(self.given.accumulation)
        return (
            math.gcd(rows, int(self.given.generations))
            if rows % int(self.given.generations)
            else self.given.generations
        )

    def config(self, kind: Any) -> Any:
        """The trainer's config. A lone completion is what one of many ranks may have of a group."""
        words = self.rollout_arguments()
        if self._group > 1:
            return kind(**words)
        steps = words.pop("gradient_accumulation_steps")
        found = kind(**{**words, "num_generations": 2, "gradient_accumulation_steps": 2 * steps})
        found.gradient_accumulation_steps = found.steps_per_generation = steps
        found.generation_batch_size = self.given.batch * steps
        found.num_generations = 1
        return found

    def rewards(self) -> Any:
        """A model, or a function that costs the device nothing."""
        return self.given.reward_model or rewarded

    @property
    def rows(self) -> int:
        """Prompts: enough for every step, whatever the number of ranks."""
        return 4 * super().rows


def rollout_job() -> RolloutJob:
    """The script's arguments; with an engine, what stands in for it is in its place."""
    given = parsed(
        ("--generations", {"type": int, "default": 8}),
        ("--beta", {"type": float, "default": None}),
        ("--reward-model", {"default": ""}),
        ("--whole-logits", {"action": "store_true", "help": "log-probabilities as ms-swift takes them"}),
        ("--engine", {"choices": ("none", "colocate", "server"), "default": "none"}),
    )
    if given.engine != "none":
        _stand_in(given.completion_len)
    return RolloutJob(given)


def rewarded(completions: list[Any], **_: Any) -> list[float]:
    """As many rewards as completions."""
    return [1.0] * len(completions)


def _stand_in(completion_len: int) -> None:
    """TRL's own side of vLLM runs without it: completions of full length, with the log-probabilities that it gives.

    trl/generation/vllm_generation.py: VLLMGeneration.generate, of which the trainers read completions and
    log-probabilities; the engine's memory is computed elsewhere.
    """

    class StandIn:
        def __init__(self, **_: Any) -> None:
            self.vllm_client = mock.MagicMock()
            self.vllm_client.get_server_info.return_value = {"model_config": {"logprobs_mode": "processed_logprobs"}}

        def sync_weights(self) -> None:
            """Nobody is there to take them."""

        def generate(self, prompts: list[list[int]], **_: Any) -> tuple[Any, ...]:
            rows = range(len(prompts))
            tokens = [[5] * completion_len for _ in rows]
            return prompts, tokens, [[[-1.0]] * completion_len for _ in rows], None

    for name in ("grpo_trainer", "rloo_trainer"):
        import_module(f"trl.trainer.{name}").VLLMGeneration = StandIn  # type: ignore[attr-defined]
