"""Whether a job's option words ask for inference: read before anything else is imported."""

from collections.abc import Mapping

from gpu_plan.planner.errors import UsageError

SERVING = (
    "concurrency", "gpu-memory-utilization", "vllm-tp", "max-num-seqs", "max-num-batched-tokens", "enforce-eager",
)  # fmt: skip
"""Options that only a server has."""


def is_inference(words: Mapping[str, str]) -> bool:
    """Whether the words ask for inference. UsageError for inference's options without it."""
    if words.get("task") == "infer":
        if "recipe" in words:
            raise UsageError("--recipe trains models: leave --task infer out")
        for name in SERVING:
            if name in words and "server" not in words:
                raise UsageError(f"--{name} is about a server: add --server vllm")
        return True
    own: tuple[str, ...] = ("server", *SERVING, "context", "batch", "new-tokens", "kv-dtype", "quantize")
    if "recipe" in words:
        own = tuple(name for name in own if name not in ("vllm-tp", "gpu-memory-utilization", "enforce-eager"))
    neutral = {"quantize": "none"}
    for name in own:
        if name in words and words[name] != neutral.get(name):
            instead = {"context": ", or --seq-len for training", "batch": ", or --micro-batch for training"}
            raise UsageError(f"--{name} is about inference: add --task infer{instead.get(name, '')}")
    return False
