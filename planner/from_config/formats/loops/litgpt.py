"""litgpt's YAML, of `litgpt finetune`, `finetune_lora` and `pretrain`.

Meanings and defaults, of 0.5.13: litgpt/finetune/{full,lora}.py, litgpt/pretrain.py, litgpt/args.py (TrainArgs),
litgpt/utils.py (instantiate_bnb_optimizer: bitsandbytes' paged AdamW in 32 bits under quantisation).
"""

from gpu_plan.planner.from_config.formats.shared import (
    clipping,
    say_adapters,
    say_component_optimizer,
    say_mixed,
    say_stack,
)
from gpu_plan.planner.from_config.reading import Reading
from gpu_plan.planner.from_config.signs import first, together
from gpu_plan.planner.from_config.table import Table
from gpu_plan.planner.strategy.known import strategy_by
from gpu_plan.planner.strategy.traits import Engine
from gpu_plan.planner.workload.precisions import pure_in
from gpu_plan.planner.workload.stacks.registry import Stack

SIGNS = first(
    together("checkpoint_dir", "train", "precision"), together("model_name", "train", "precision"),
    together("checkpoint_dir", "train", "data"),
)  # fmt: skip

_WHOSE = "litgpt"
_PRECISIONS = {
    "32-true": "no", "bf16-mixed": "bf16", "16-mixed": "fp16",
}  # fmt: skip
_PURE = {"bf16-true": "bfloat16"}
_ATTENTION = {"lora_query": "q_proj", "lora_key": "k_proj", "lora_value": "v_proj", "lora_projection": "o_proj"}
_ON = ("lora_query", "lora_value")
"""Those of which the default is true."""
_MLP = ("gate_proj", "up_proj", "down_proj")
_ONE_MATRIX = {
    "falcon": "query_key_value", "pythia": "query_key_value", "redpajama": "query_key_value",
    "stablelm-base-alpha": "query_key_value", "dolly": "query_key_value", "phi-3": "qkv_proj", "phi-4": "qkv_proj",
}  # fmt: skip
"""The hub's name of the matrix in which q, k and v are one, by what such models are called."""
_BATCHES = {"finetune": (16, 1), "pretrain": (512, 4)}
"""Default global and micro batch."""


def read(reading: Reading) -> None:
    """Notes what `litgpt` would do with the file."""
    table = reading.table
    pretrains = table.has("model_name") or not table.has("checkpoint_dir")
    adapts = any(table.stands(key) for key in ("lora_r", "lora_query", "quantize"))
    say_stack(reading, Stack.LITGPT, "litgpt runs a loop of its own, in Lightning's Fabric")
    _model(reading, table, pretrains)
    _count(reading, table, pretrains)
    _spread(reading, adapts=adapts, pretrains=pretrains)
    train = table.table("train") or reading.inner({}, "train")
    _batch(reading, train, _BATCHES["pretrain" if pretrains else "finetune"])
    _precision(reading, table)
    packed = table.word("quantize")
    _optimizer(reading, table, packed=packed is not None, fused=pretrains)
    if adapts:
        _adapters(reading, table, packed)
    clipping(reading, train.rate("max_norm"), "train.max_norm")
    # litgpt finetune/lora.py, pretrain.py (0.5.13): fit evaluates before its first step and every eval.interval, by
    # batches of the same size.
    reading.set("eval.batch", int(reading.value("micro-batch") or 1), f"{_WHOSE} evaluates by micro batches")
    if pretrains:
        reading.approximate("litgpt compiles what it pretrains: planned without compilation")


def _model(reading: Reading, table: Table, pretrains: bool) -> None:
    """`checkpoints/OWNER/NAME` is where litgpt downloads to."""
    if pretrains:
        name = table.word("model_name")
        reading.notes.append(f"model_name: {name} is litgpt's own name: planned is the MODEL that you name")
        return
    folder = table.word("checkpoint_dir") or ""
    owner, _, name = folder.strip("/").rpartition("/")
    owner = owner.rpartition("/")[2]
    if owner and owner not in ("checkpoints", "."):
        reading.model = f"{owner}/{name}"
    else:
        reading.notes.append(f"checkpoint_dir: {folder} names no model of the hub: planned is the MODEL that you name")


def _count(reading: Reading, table: Table, pretrains: bool) -> None:
    nodes = table.count("num_nodes") or 1
    everything = "auto" if pretrains else 1
    value = table.raw("devices")
    devices = table.count("devices") if value is not None else None if everything == "auto" else 1
    reading.nodes = nodes
    reading.processes = None if devices is None else devices * nodes


def _spread(reading: Reading, *, adapts: bool, pretrains: bool) -> None:
    """Fabric's strategy: one device alone; FSDP with checkpoints to train, without to pretrain, FSDP2 for LoRA."""
    engine = Engine.FSDP2 if adapts or pretrains else Engine.FSDP1
    reading.plain = True
    reading.many = strategy_by(engine, replicates=True).name if pretrains else strategy_by(engine).name
    count = reading.count
    if count is None:
        reading.notes.append("above one device litgpt checkpoints every block when it finetunes")
        return
    on = count > 1 and not pretrains
    source = f"litgpt on {count} device{'s' * (count > 1)}"
    reading.say("checkpointing", "full" if on else "none", source)
    if pretrains and count > 1:
        reading.approximate("FSDP version 1, HYBRID_SHARD: planned as its FSDP2 counterpart")


def _batch(reading: Reading, train: Table, default: tuple[int, int]) -> None:
    whole, micro = train.count("global_batch_size"), train.count("micro_batch_size")
    length = train.count("max_seq_length")
    reading.say(
        "micro-batch", micro or default[1], f"train.micro_batch_size: {micro}" if micro else f"{_WHOSE}'s default"
    )
    count = reading.count
    if count is not None:
        steps = (whole or default[0]) // count // (micro or default[1])
        if steps < 1:
            raise reading.contradiction(
                f"train.global_batch_size {whole or default[0]} is less than a micro batch of {micro or default[1]} on"
                f" {count} devices"
            )
        reading.say("grad-accum", steps, f"train.global_batch_size: {whole}" if whole else f"{_WHOSE}'s default")
    if length is None:
        reading.notes.append("train.max_seq_length is empty: samples are as long as the data's, name it with --seq-len")
    else:
        reading.say("seq-len", length, f"train.max_seq_length: {length}")


def _precision(reading: Reading, table: Table) -> None:
    name = table.word("precision")
    source = f"precision: {name}" if name else f"{_WHOSE}'s default where the GPU has bfloat16"
    name = name or "bf16-mixed"
    if name in _PURE:
        reading.say("precision", pure_in(_PURE[name]), source)
    elif name in _PRECISIONS:
        say_mixed(reading, _PRECISIONS[name], source)
    else:
        raise table.wrong("precision", "bf16-true, bf16-mixed, 16-mixed or 32-true")


def _optimizer(reading: Reading, table: Table, *, packed: bool, fused: bool) -> None:
    value = table.raw("optimizer")
    inner = table.table("optimizer") if isinstance(value, dict) else None
    path = (inner.word("class_path") if inner is not None else table.word("optimizer")) or "AdamW"
    if packed:
        path = "bitsandbytes.optim.PagedAdamW"
        say_component_optimizer(reading, path, f"quantize: {path}, of 32 bits", fused=False)
        return
    say_component_optimizer(reading, path, f"optimizer: {path}", fused=fused)


def _adapters(reading: Reading, table: Table, packed: str | None) -> None:
    say_adapters(reading, "lora_r", quantised=packed is not None, because=f"quantize: {packed}")
    if packed is not None:
        kind = packed.removeprefix("bnb.")
        if kind.startswith("int8"):
            reading.set("quant.base", "int8", f"quantize: {packed}")
        else:
            reading.set("quant.double", kind.endswith("-dq"), f"quantize: {packed}")
            if kind.startswith("fp4"):
                reading.approximate(f"quantize: {packed}: planned as nf4, which is as large")
    rank, share = table.count("lora_r"), table.rate("lora_dropout")
    reading.say("lora-rank", rank or 8, f"lora_r: {rank}" if rank else f"{_WHOSE}'s default")
    share = 0.05 if share is None else share
    if share:
        reading.set("lora.dropout", share, f"lora_dropout: {share}")
    on = {key: table.flag(key) for key in (*_ATTENTION, "lora_mlp", "lora_head")}
    on = {key: key in _ON if flag is None else flag for key, flag in on.items()}
    if on.pop("lora_head"):
        reading.approximate("lora_head: true: planned without")
    if all(on.values()):
        reading.say("lora-targets", "all-linear", "lora_query, lora_key, lora_value, lora_projection, lora_mlp")
        return
    matrix = next((one for sign, one in _ONE_MATRIX.items() if sign in (reading.model or "").lower()), None)
    if matrix is not None and any(on[key] for key in ("lora_query", "lora_key", "lora_value")):
        reading.approximate(
            f"lora_query, lora_key, lora_value: one matrix on the hub: planned with adapters on {matrix}"
        )
        reading.say("lora-targets", matrix, "lora_query, lora_key, lora_value")
        return
    targets = [name for key, name in _ATTENTION.items() if on[key]] + list(_MLP if on["lora_mlp"] else ())
    if targets:
        reading.say("lora-targets", ",".join(targets), ", ".join(key for key, flag in on.items() if flag))
