"""What vLLM chooses where it is not told.

vLLM 0.33.0: engine/arg_utils.py (get_batch_defaults, _set_default_max_num_seqs_and_batched_tokens_args),
config/cache.py (gpu_memory_utilization, block_size), config/vllm.py (_set_cudagraph_sizes, max_concurrent_batches).
"""

from gpu_plan.planner.hardware.gpu import Gpu
from gpu_plan.planner.serving.profile import Batching
from gpu_plan.planner.units import GIB

UTILIZATION = 0.92
BLOCK_SIZE = 16
"""Tokens of a block, for attention whose kernel takes any multiple of 16."""
CONCURRENT_BATCHES = 2
"""Batches under way at once: asynchronous scheduling prepares one while another runs."""
_LARGE, _MIDDLE = 160 * GIB, 70 * GIB
_BLACKWELL = 10
"""Major compute capability of B200 and its kin, for which larger graphs are captured."""


def batching(gpu: Gpu, max_model_len: int, tokens: int | None = None, seqs: int | None = None) -> Batching:
    """Of `vllm serve` on a card; `tokens` and `seqs` where they are given.

    The card's whole memory decides, and its name: A100s keep the smaller defaults.
    """
    total = gpu.usable_bytes or 0
    if total >= _LARGE:
        own_tokens, own_seqs = 16384, 1024
    elif total >= _MIDDLE and "a100" not in gpu.name.lower() and gpu.compute_capability != (12, 1):
        own_tokens, own_seqs = 8192, 1024
    else:
        own_tokens, own_seqs = 2048, 256
    chosen_seqs = seqs or own_seqs
    chosen_tokens = tokens or min(chosen_seqs * max_model_len, own_tokens)
    return Batching(
        max_num_batched_tokens=chosen_tokens,
        max_num_seqs=seqs or min(chosen_seqs, chosen_tokens),
    )


def capture_sizes(gpu: Gpu, batch: Batching) -> tuple[int, ...]:
    """Token counts for which CUDA graphs are captured, ascending."""
    capability = gpu.compute_capability or (0, 0)
    most = 1024 if capability[0] == _BLACKWELL else 512
    largest = min(batch.max_num_seqs * 2, most, batch.max_num_batched_tokens)
    sizes = {size for size in (1, 2, 4) if size <= largest}
    sizes |= set(range(8, min(largest + 1, 256), 8))
    sizes |= set(range(256, largest + 1, 16))
    if batch.max_num_batched_tokens <= largest:
        sizes.add(batch.max_num_batched_tokens)
    if batch.max_num_seqs <= min(largest, batch.max_num_batched_tokens):
        sizes.add(batch.max_num_seqs)
    return tuple(sorted(sizes))


def full_graphs(sizes: tuple[int, ...], batch: Batching) -> int:
    """How many of the sizes are captured whole as well, for batches of single tokens.

    v1/worker/gpu/cudagraph_utils.py (_init_candidates): decoding has graphs of its own up to `max_num_seqs` tokens.
    """
    return sum(size <= batch.max_num_seqs for size in sizes)
