"""vLLM among the engines.

vLLM 0.33.0: entrypoints/cli/serve.py, engine/arg_utils.py (options), config/model.py (verify_with_parallel_config).
"""

from collections.abc import Mapping
from typing import Any

from gpu_plan.planner.serving.layers import heads
from gpu_plan.planner.serving.server import Asked, Server
from gpu_plan.planner.serving.states import mixer
from gpu_plan.planner.serving.vllm import VERSION
from gpu_plan.planner.serving.vllm.defaults import UTILIZATION
from gpu_plan.planner.serving.vllm.engine import engine_memory


def _command(asked: Asked) -> list[str]:
    memory = asked.memory
    words = ["vllm", "serve", asked.model, "--max-model-len", str(memory.max_model_len)]
    words += ["--gpu-memory-utilization", f"{memory.utilization:g}"]
    if asked.tensor_parallel > 1:
        words += ["--tensor-parallel-size", str(asked.tensor_parallel)]
    if asked.data_parallel > 1:
        words += ["--data-parallel-size", str(asked.data_parallel)]
    if asked.max_num_seqs is not None or asked.requests >= memory.batch.max_num_seqs:
        words += ["--max-num-seqs", str(memory.batch.max_num_seqs)]
    if asked.max_num_batched_tokens is not None:
        words += ["--max-num-batched-tokens", str(asked.max_num_batched_tokens)]
    if asked.fp8_cache:
        words += ["--kv-cache-dtype", "fp8"]
    if asked.eager:
        words += ["--enforce-eager"]
    return words


def _refusal(config: Mapping[str, Any], ranks: int) -> str | None:
    query, states = heads(config).query, mixer(config)
    if query % ranks:
        return f"vLLM splits {query} attention heads, which {ranks} does not divide"
    why = states.refusal(ranks) if states is not None else None
    return f"vLLM {why}, which {ranks} does not divide" if why else None


VLLM = Server(
    word="vllm",
    title="vLLM",
    version=VERSION,
    share="--gpu-memory-utilization",
    beside=False,
    usual_share=UTILIZATION,
    states=True,
    knows="profile run, cache blocks and graphs",
    memory=engine_memory,
    command=_command,
    refusal=_refusal,
    asleep="graphs and buffers stay",
)
