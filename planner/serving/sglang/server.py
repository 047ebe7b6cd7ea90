"""SGLang among the engines.

sglang 0.5.23: srt/server_args.py (options), srt/models/llama.py (LlamaAttention: heads among ranks).
"""

from collections.abc import Mapping
from typing import Any

from gpu_plan.planner.serving.layers import heads, latent_size
from gpu_plan.planner.serving.server import Asked, Server
from gpu_plan.planner.serving.sglang import VERSION
from gpu_plan.planner.serving.sglang.engine import engine_memory


def _command(asked: Asked) -> list[str]:
    memory = asked.memory
    words = ["python", "-m", "sglang.launch_server", "--model-path", asked.model]
    words += ["--context-length", str(memory.max_model_len)]
    if asked.utilization is not None:
        words += ["--mem-fraction-static", f"{memory.utilization:g}"]
    if asked.tensor_parallel > 1:
        words += ["--tp", str(asked.tensor_parallel)]
    if asked.data_parallel > 1:
        words += ["--dp", str(asked.data_parallel)]
    if asked.max_num_seqs is not None or asked.requests >= memory.batch.max_num_seqs:
        words += ["--max-running-requests", str(memory.batch.max_num_seqs)]
    if asked.max_num_batched_tokens is not None:
        words += ["--chunked-prefill-size", str(asked.max_num_batched_tokens)]
    if asked.fp8_cache:
        words += ["--kv-cache-dtype", "fp8_e4m3"]
    if asked.eager:
        words += ["--disable-cuda-graph"]
    return words


def _refusal(config: Mapping[str, Any], ranks: int) -> str | None:
    found = heads(config)
    if found.query % ranks:
        return f"SGLang splits {found.query} attention heads, which {ranks} does not divide"
    if latent_size(config) is None and max(found.key_value, ranks) % min(found.key_value, ranks):
        return f"SGLang shares {found.key_value} key and value heads, of which {ranks} is no multiple or part"
    return None


SGLANG = Server(
    word="sglang",
    title="SGLang",
    version=VERSION,
    share="--mem-fraction-static",
    beside=True,
    usual_share=None,
    states=False,
    knows="static share, pool of tokens and graphs",
    memory=engine_memory,
    command=_command,
    refusal=_refusal,
    asleep="graphs and kernels stay",
)
