"""The engines that serve, by name."""

from gpu_plan.planner.serving.server import Server
from gpu_plan.planner.serving.sglang.server import SGLANG
from gpu_plan.planner.serving.vllm.server import VLLM

_KNOWN = {server.word: server for server in (VLLM, SGLANG)}


def find_server(word: str) -> Server:
    """The engine of that name; KeyError for another."""
    return _KNOWN[word]


def server_words() -> tuple[str, ...]:
    """All of them, the first read first."""
    return tuple(_KNOWN)
