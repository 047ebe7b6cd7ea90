"""Keys that any of the kinds may have beside its own, and what a plan makes of them.

Meanings: transformers training_args.py (5.23), trl trainer/sft_config.py (1.16), axolotl utils/schemas/config.py,
ms-swift trainers/arguments.py (4.5), LLaMA-Factory hparams/{data,model}_args.py (0.9.5), v1/config/training_args.py.
"""

from gpu_plan.planner.from_config.formats.rows import say_rows
from gpu_plan.planner.from_config.formats.shared import say_otherwise
from gpu_plan.planner.from_config.reading import Reading
from gpu_plan.planner.workload.precisions import PLAIN_PRECISION

_OTHERWISE = {
    "torch_empty_cache_steps": "planned without emptying the allocator's cache",
    "full_determinism": "planned with kernels that need not be deterministic",
    "neftune_noise_alpha": "planned without noise on the embeddings",
    "noisy_embedding_alpha": "planned without noise on the embeddings",
    "group_by_length": "planned with rows of the whole length, as without it",
    "use_cache": "planned without a cache of keys and values",
    "eval_sequence_len": "evaluation is planned with rows of the training's length",
    "eval_table_size": "planned without what is generated for its table",
    "save_ckpt_as_hf": "planned without the whole copy that is gathered to be saved",
    "tokens": "planned with the model's own vocabulary",
    "new_special_tokens": "planned with the model's own vocabulary",
    "add_tokens": "planned with the model's own vocabulary",
    "add_special_tokens": "planned with the model's own vocabulary",
    "resize_vocab": "planned with the model's own vocabulary",
}
"""What no plan follows, and what is planned in its place."""
_HOOKS = "underflow_overflow"


def say_beside(reading: Reading) -> None:
    """Says of each such key at the file's top what is planned."""
    table = reading.table
    say_otherwise(reading, table, _OTHERWISE)
    say_rows(reading, table)
    if reading.value("precision") == PLAIN_PRECISION:
        instead = "planned at the rates of full precision, of which TF32's are the fast end"
        say_otherwise(reading, table, {"tf32": instead})
    if _HOOKS in str(table.peek("debug")):
        table.raw("debug")
        reading.approximate(f"debug: {_HOOKS}: planned without its hooks")
    if table.peek("profiling") is True:
        table.raw("profiling")
        reading.approximate("profiling: true: planned without a profiler")
    if table.has("special_tokens"):
        table.raw("special_tokens")
        reading.notes.append("special_tokens: rows of tokens that the vocabulary lacks are not counted")
    if table.raw("ds3_gather_for_generation") is False and reading.several:
        reading.approximate("ds3_gather_for_generation: false: planned with the weights gathered for generations")
