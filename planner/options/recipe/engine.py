"""Options of an engine that generates for a trainer."""

from collections.abc import Mapping

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.planner.options.values import positive
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.workload.recipes import ENGINES

ENGINE_WORDS = ("gpu-memory-utilization", "vllm-tp", "enforce-eager")
"""Options that a server has too."""
COLOCATED_SHARE, SERVER_SHARE = 0.3, 0.9
"""trl 1.16: GRPOConfig.vllm_gpu_memory_utilization; scripts/vllm_serve.py: gpu_memory_utilization."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineGiven:
    """An engine beside the trainer."""

    mode: str
    """`colocate` or `server`."""
    share: float
    """Of each of its devices."""
    tensor_parallel: int | None
    """None: searched for a server, 1 beside the trainer."""
    sleeps: bool
    """Whether its weights and cache go while the trainer computes."""
    may_sleep: bool = False
    """Whether nobody said so, and it sleeps where an update leaves no room beside it awake."""
    eager: bool
    engine: str = "vllm"
    """Which it is, as `--server` names it."""
    sequences: int | None = None
    """That it computes at once; None: as many as a rank's group generates."""
    batched_tokens: int | None = None
    """That it computes at once; None: as TRL sets it."""
    copies: int = 1
    """Of a server, each on devices of its own."""


def read_engine(words: Mapping[str, str], recipe: str) -> EngineGiven | None:
    """The engine that the words ask for; None without one. UsageError for values that make no sense."""
    mode = words.get("vllm", "").lower()
    if not mode:
        for name in ("vllm-sleep", *ENGINE_WORDS):
            if name in words:
                shown = "vllm-memory" if name == "gpu-memory-utilization" else name
                raise UsageError(f"--{shown} is about vLLM: add --vllm colocate or --vllm server")
        return None
    if mode not in ENGINES:
        raise UsageError(
            f"--vllm {words['vllm'][:40]!r} is unknown: use {', '.join(ENGINES)}.{did_you_mean(mode, ENGINES)}"
        )
    sleeps = words.get("vllm-sleep") == "true"
    if sleeps and mode == "server":
        raise UsageError("--vllm-sleep: a server has GPUs of its own and need not sleep; leave it out")
    return EngineGiven(
        mode=mode,
        share=_share(words.get("gpu-memory-utilization"), COLOCATED_SHARE if mode == "colocate" else SERVER_SHARE),
        tensor_parallel=positive(words.get("vllm-tp"), "--vllm-tp"),
        sleeps=sleeps,
        may_sleep=mode == "colocate" and "vllm-sleep" not in words,
        eager=words.get("enforce-eager") == "true",
    )


def _share(word: str | None, usual: float) -> float:
    if word is None:
        return usual
    try:
        share = float(word) if len(word) < 32 else -1.0
    except ValueError:
        share = -1.0
    if not 0.0 < share <= 1.0:
        raise UsageError(f"--vllm-memory {word[:40]!r} is no share above 0 and at most 1, such as 0.3")
    return share
