"""What calls and methods give: the reader's knowledge of torch, accelerate and transformers."""

import ast

from gpu_plan.executor.doctor.flow import values as v
from gpu_plan.executor.doctor.flow.guards import by_name
from gpu_plan.executor.doctor.flow.names import last, makes_loss, makes_model, makes_optimizer, makes_scheduler
from gpu_plan.executor.doctor.flow.values import NOTHING, Value, flat, join, spread

_SAME_MODEL = frozenset(
    {
        "to", "cuda", "cpu", "train", "eval", "half", "float", "bfloat16", "double", "requires_grad_", "apply",
        "merge_and_unload",
    }
)  # fmt: skip
_SAMPLES = frozenset(
    {"logits", "prediction_logits", "start_logits", "end_logits", "last_hidden_state", "pooler_output", "sample"}
)
_NOT_LOCAL = frozenset(
    {"shape", "dtype", "device", "ndim", "size", "dim", "numel", "is_cuda", "requires_grad", "keys", "__class__"}
)
_REDUCING = frozenset({"mean", "sum", "item", "max", "min", "median", "all", "any"})
_AGREEING = (
    "gather",
    "reduce",
    "broadcast",
    "all_",
    "sync_",
    "synchron",
    "allreduce",
    "across_processes",
    "check_trigger",
)
_CLOCKS = frozenset(
    {"time.time", "time.perf_counter", "time.monotonic", "datetime.datetime.now", "torch.cuda.memory_allocated"}
)
_PLAIN = frozenset({"len", "isinstance", "hasattr", "callable", "type", "range", "id", "issubclass"})
_MODEL_WORDS = ("model", "unet", "transformer", "net", "encoder", "decoder", "lora", "vae", "controlnet")


def attribute(base: Value, name: str) -> Value:
    """The value of `base.name`, where `base` is no instance of a class of the script."""
    if (base.kind in {"accelerator", "state", "trainer", ""}) and (ranked := by_name(name)).kind:
        return ranked
    if base.kind in {"accelerator", "state"}:
        return Value(kind="device", marks=frozenset({v.OWN_DEVICE})) if name == "device" else NOTHING
    if base.kind == "model":
        return _unwrapped(base) if name in {"module", "_orig_mod"} else NOTHING
    if name in _NOT_LOCAL:
        return NOTHING
    if base.kind == "output" or base.has(v.LOCAL):
        if name == "loss" or name.endswith("_loss"):
            return Value(marks=frozenset({v.LOCAL, v.LOSS}))
        if name in _SAMPLES:
            return Value(marks=frozenset({v.LOCAL, v.SAMPLE}))
    if name == "device":
        return Value(kind="device", marks=frozenset({v.OWN_DEVICE}))
    return spread([base])


def _unwrapped(model: Value) -> Value:
    return model.without(v.PREPARED, v.WRAPPED).with_marks(v.UNWRAPPED)


def agreed(value: Value) -> Value:
    """`value` after a collective made it the same on every rank."""
    items = None if value.items is None else tuple(agreed(item) for item in value.items)
    marks = value.marks - {v.LOCAL, v.GENERATED}
    return Value(kind=value.kind, marks=marks, origins=value.origins, items=items, target=value.target)


def element(value: Value) -> Value:
    """What iterating over `value` gives."""
    if value.kind == "loader":
        kept = value.marks & {v.PREPARED, v.RANK_SAMPLER}
        return Value(kind="batch", marks=kept | {v.LOCAL, v.SAMPLE}, origins=value.origins, target=value.target)
    if value.kind == "each":
        return value.items[0] if value.items else NOTHING
    if value.kind in {"parameters", "batch"}:
        return value
    if value.items is not None:
        return join(value.items)
    return spread([value])


def each(inner: Value, over: Value) -> Value:
    """Something that gives `inner` for each round over `over`."""
    marks = over.marks & {v.PREPARED, v.RANK_SAMPLER}
    return Value(kind="each", items=(inner,), origins=over.origins, target=over.target, marks=marks)


def of_method(base: Value, name: str, arguments: tuple[Value, ...]) -> Value | None:
    """What `base.name(...)` gives; None where nothing special is known."""
    if base.kind == "accelerator":
        return _of_accelerator(name, arguments)
    if base.kind == "state" and name == "split_between_processes":
        return Value(marks=frozenset({v.LOCAL, v.PER_RANK}))
    if base.kind == "model":
        return _of_model(base, name)
    if base.kind == "loader":
        return base if name in {"with_epoch"} else NOTHING
    if base.kind == "batch":
        return _of_batch(base, name)
    if base.kind == "optimizer" or base.kind == "scheduler":
        return NOTHING
    if name in _NOT_LOCAL:
        return NOTHING
    marks = v.all_marks(base)
    if v.LOCAL in marks and name in _REDUCING:
        return spread([base, *arguments]).without(v.SAMPLE)
    if v.LOSS in marks and name in {"repeat", "expand", "repeat_interleave"}:
        return spread([base]).with_marks(v.SAMPLE)
    if name in {"to", "detach", "cpu", "float", "clone", "cuda"}:
        return base
    return None


def _of_accelerator(name: str, arguments: tuple[Value, ...]) -> Value:
    first = arguments[0] if arguments else NOTHING
    if name in {"gather", "gather_for_metrics", "reduce"}:
        return agreed(first)
    if name == "pad_across_processes":
        return first.without(v.GENERATED)
    if name == "unwrap_model":
        return _unwrapped(first) if first.kind in {"model", ""} else first
    if name == "skip_first_batches":
        return first
    if name == "split_between_processes":
        return Value(marks=frozenset({v.LOCAL, v.PER_RANK}))
    if name == "get_state_dict":
        return Value(kind="state_dict")
    if name in {"clip_grad_norm_", "clip_grad_value_"}:
        return NOTHING
    return NOTHING


def _of_model(base: Value, name: str) -> Value | None:
    if name in _SAME_MODEL:
        return base
    if name in {"parameters", "named_parameters", "trainable_parameters"}:
        return Value(kind="parameters", origins=base.origins)
    if name == "state_dict":
        return Value(kind="state_dict", marks=base.marks & {v.PREPARED, v.WRAPPED}, origins=base.origins)
    if name == "generate":
        return Value(marks=frozenset({v.LOCAL, v.SAMPLE, v.GENERATED}))
    if name in {"forward", "training_step"}:
        return Value(kind="output", marks=frozenset({v.LOCAL}))
    return NOTHING


def _of_batch(base: Value, name: str) -> Value:
    if name in {"items"}:
        return each(Value(items=(NOTHING, _part(base))), base)
    if name == "values":
        return each(_part(base), base)
    if name in {"pop", "get", "pin_memory"}:
        return _part(base)
    if name == "keys":
        return NOTHING
    return base


def _part(batch: Value) -> Value:
    return Value(kind="batch", marks=batch.marks, origins=batch.origins, target=batch.target)


def of_call(name: str, arguments: tuple[Value, ...], keywords: dict[str, Value], node: ast.Call) -> Value | None:
    """What calling the dotted `name` gives; None where nothing special is known."""
    tail, here = last(name), frozenset({id(node)})
    first = arguments[0] if arguments else NOTHING
    if tail == "Accelerator":
        return Value(kind="accelerator", origins=here, target=node)
    if tail in {"PartialState", "AcceleratorState"}:
        return Value(kind="state", origins=here)
    if name in _PLAIN:
        sharded = name == "len" and first.kind == "loader" and first.has(v.PREPARED)
        return Value(marks=frozenset({v.SHARDED_LENGTH})) if sharded else NOTHING
    if name in _CLOCKS:
        return Value(marks=frozenset({v.LOCAL}))
    if (ranked := by_name(name)).kind:
        return ranked
    if name == "int" and first.kind == "rank":
        return first
    if (iterated := _iteration(tail, arguments)) is not None:
        return iterated
    if tail in {"DataLoader", "StatefulDataLoader"}:
        sampled = keywords.get("sampler", NOTHING), keywords.get("batch_sampler", NOTHING), first
        marks = join(sampled).marks & {v.RANK_SAMPLER, v.PER_RANK}
        return Value(kind="loader", origins=here, target=node, marks=marks)
    if tail == "DistributedSampler":
        return Value(kind="sampler", origins=here, target=node, marks=frozenset({v.RANK_SAMPLER}))
    if tail.endswith("Sampler"):
        return Value(kind="sampler", origins=here, marks=join(arguments).marks & {v.RANK_SAMPLER})
    if tail == "split_dataset_by_node":
        return Value(marks=frozenset({v.PER_RANK, v.RANK_SAMPLER}))
    if (made := _objects(name, arguments, keywords, node)) is not None:
        return made
    if any(word in tail.lower() for word in _AGREEING):
        return agreed(first)
    return None


def _iteration(tail: str, arguments: tuple[Value, ...]) -> Value | None:
    if not arguments:
        return None
    first = arguments[0]
    if tail in {"tqdm", "trange", "track", "MpDeviceLoader", "progress_bar"} or tail in {"reversed", "sorted"}:
        return first
    if tail == "enumerate":
        return each(Value(items=(NOTHING, element(first))), first)
    if tail == "zip":
        return each(Value(items=tuple(element(value) for value in arguments)), join(arguments))
    if tail in {"iter", "islice", "cycle"}:
        return each(element(first), first)
    if tail == "next":
        return element(first)
    if tail == "skip_first_batches":
        return first
    if tail in {"list", "tuple", "filter", "chain"}:
        inner = arguments[-1] if tail == "filter" else first
        if any(value.kind == "parameters" for value in arguments):
            return Value(kind="parameters", origins=join(arguments).origins)
        return inner if tail != "chain" else None
    return None


def _objects(name: str, arguments: tuple[Value, ...], keywords: dict[str, Value], node: ast.Call) -> Value | None:
    tail, here = last(name), frozenset({id(node)})
    first = arguments[0] if arguments else NOTHING
    if tail in {"get_peft_model", "prepare_model_for_kbit_training"} or name.endswith("PeftModel.from_pretrained"):
        return first if first.kind == "model" else Value(kind="model", origins=here, target=node)
    if tail == "GradScaler":
        return Value(kind="scaler", origins=here)
    if tail.endswith("Trainer") and tail[:1].isupper():
        return Value(kind="trainer", origins=here, target=node)
    if tail in {"device", "current_device", "get_device"}:
        owned = tail != "device" or any(value.marks & {v.PER_RANK, v.OWN_DEVICE} for value in arguments)
        return Value(kind="device", marks=frozenset({v.OWN_DEVICE} if owned else ()))
    if makes_scheduler(name):
        marks = join([*arguments, *keywords.values()]).marks & {v.SHARDED_LENGTH}
        return Value(kind="scheduler", origins=here, target=node, marks=marks)
    if makes_optimizer(name):
        return Value(kind="optimizer", origins=here, target=node)
    if makes_loss(name):
        if tail[:1].isupper():
            return Value(kind="criterion", target=node)
        return Value(marks=frozenset({v.LOSS, v.LOCAL}))
    given = [value for value in (*arguments, *keywords.values()) if value.kind == "model"]
    if makes_model(name) or (given and tail[:1].isupper() and tail.endswith(("Model", "Net", "Wrapper"))):
        mapped = any(
            keyword.arg == "device_map" and isinstance(keyword.value, ast.Constant) and keyword.value.value == "auto"
            for keyword in node.keywords
        )
        # A module made of others holds them: wrapping it wraps them.
        held = frozenset().union(*(value.origins for value in given))
        return Value(kind="model", origins=here | held, target=node, marks=frozenset({v.AUTO_MAP} if mapped else ()))
    return None


def guess(name: str) -> str:
    """The kind that the name of a variable given to `prepare` suggests; empty where it suggests none."""
    low = name.lower()
    if "optim" in low:
        return "optimizer"
    if "sched" in low:
        return "scheduler"
    if "loader" in low or low.endswith(("_dl", "dl")):
        return "loader"
    return "model" if any(word in low for word in _MODEL_WORDS) else ""


def sources_of(arguments: tuple[Value, ...]) -> frozenset[int]:
    """Origins of the models whose parameters are among `arguments`."""
    leaves = [leaf for value in arguments for leaf in flat(value)]
    found = [leaf.origins for leaf in leaves if leaf.kind in {"parameters", "model"}]
    return frozenset().union(*found)
