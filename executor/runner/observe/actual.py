"""What really runs, read from the modules that are called and from the state of torch, accelerate and DeepSpeed.

Nothing is imported: a class that the script never imported cannot be in its model.
"""

import math
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from gpu_plan.executor.runner.observe import wrapping

MAX_CLASSES = 16


def inspect_models(roots: Iterable[Any], autocast: str | None) -> dict[str, Any]:
    """The fields of `gpu_plan.executor.records.rank.Actual` that the models tell; `roots` are the outermost ones."""
    models = list(roots)
    counts = Counts()
    for model in models:
        counts.add(model)
    main = models[0] if models else None
    state = process_state()
    found = wrapping_of(main) if main is not None else None
    strategy = None if found is None else wrapping.strategy_called(found)
    if state["distributed_type"] is None and strategy is not None:  # without accelerate
        state["distributed_type"] = "NO" if found == wrapping.NOTHING else strategy.upper()
    return {
        **state,
        "strategy": strategy,
        "tensor_parallel": tensor_parallel_of(main) if main is not None else 1,
        "expert_parallel": expert_parallel_of(main) if main is not None else 1,
        "wrapped_classes": list(wrapped_classes(main))[:MAX_CLASSES] if main is not None else [],
        "mixed_precision": mixed_precision(main, autocast),
        "parameter_dtypes": counts.dtypes,
        "parameters": counts.total,
        "trainable_parameters": counts.trainable,
    }


def process_state() -> dict[str, Any]:
    """How this process is joined with others, not what an environment variable claims.

    Accelerate's own count goes first: on CPU it can make a process group and then let each process train alone.
    """
    distributed = sys.modules.get("torch.distributed")
    joined = distributed is not None and distributed.is_available() and distributed.is_initialized()
    state = _shared_state("PartialState")
    kind = state.get("distributed_type")
    size = distributed.get_world_size() if joined and distributed is not None else 1
    return {
        "world_size": state.get("num_processes", size),
        "backend": str(distributed.get_backend()) if joined and distributed is not None else None,
        "distributed_type": getattr(kind, "value", None),
    }


def gloo_groups() -> list[Any]:
    """The process groups that this process has joined over gloo."""
    world = _class("torch.distributed.distributed_c10d", "_world")
    groups = getattr(world, "pg_map", None) or {}
    return [group for group, (backend, _) in groups.items() if str(backend).split(":")[-1] == "gloo"]


class Counts:
    """Elements of parameters, each once, whole even where a rank holds a shard."""

    def __init__(self) -> None:
        self.total = self.trainable = 0
        self.dtypes: dict[str, int] = {}
        self._seen: set[int] = set()

    def add(self, model: Any) -> None:
        """All parameters of `model` that have not been counted yet."""
        whole = getattr(model, "_whole_parameters", None)
        if whole is not None:  # in stages each rank has some of them alone
            self._add_whole(model, whole)
            return
        for parameter, elements, trains in _elements(model):
            if id(parameter) in self._seen:
                continue
            self._seen.add(id(parameter))
            name = str(parameter.dtype).removeprefix("torch.")
            self.total += elements
            self.trainable += elements if trains else 0
            self.dtypes[name] = self.dtypes.get(name, 0) + elements

    def _add_whole(self, model: Any, parameters: Iterable[tuple[int, bool, str]]) -> None:
        if id(model) in self._seen:
            return
        self._seen.add(id(model))
        for elements, trains, dtype in parameters:
            name = dtype.removeprefix("torch.")
            self.total += elements
            self.trainable += elements if trains else 0
            self.dtypes[name] = self.dtypes.get(name, 0) + elements


def _elements(model: Any) -> Iterator[tuple[Any, int, bool]]:
    """Each parameter with its whole size and whether it is trained."""
    flat: set[int] = set()
    for module in model.modules():
        # FSDP1 keeps the sizes of what it flattened on the flat parameter (torch/distributed/fsdp/_flat_param.py).
        parameter = getattr(getattr(module, "_handle", None), "flat_param", None)
        if parameter is None or id(parameter) in flat:
            continue
        flat.add(id(parameter))
        originals = parameter._params
        if originals is None:
            yield parameter, sum(parameter._numels), parameter.requires_grad
            continue
        for original, elements in zip(originals, parameter._numels, strict=True):
            flat.add(id(original))
            yield original, elements, original.requires_grad
    for parameter in model.parameters():
        if id(parameter) not in flat:
            yield parameter, _whole(parameter), parameter.requires_grad


def _whole(parameter: Any) -> int:
    if hasattr(parameter, "ds_numel"):  # ZeRO-3: the tensor itself is empty between uses
        return int(parameter.ds_numel)
    state = getattr(parameter, "quant_state", None)
    if state is not None:  # bitsandbytes packs two 4-bit elements in a byte
        return math.prod(state.shape)
    return int(parameter.numel())  # a DTensor's is that of the whole


def wrapping_of(model: Any) -> str:
    """What is found around and inside the model, in the words of gpu_plan.executor.runner.observe.wrapping."""
    piped = next((found for one in layers(model) if (found := getattr(one, "_pipeline", None)) is not None), None)
    if piped is not None:
        return wrapping.stage(piped.layout.data, together=piped.layout.together > 1)
    engine, ddp, fsdp1, fsdp2 = (_class(module, name) for module, name in _WRAPPERS)
    for layer in layers(model):
        if engine is not None and isinstance(layer, engine):
            return wrapping.deepspeed(int(layer.zero_optimization_stage()))
    for module in model.modules():
        if fsdp1 is not None and isinstance(module, fsdp1):
            return wrapping.fsdp1(module.sharding_strategy.name)
        if fsdp2 is not None and isinstance(module, fsdp2):
            replicated = _ranks_of(model, "dp_replicate") > 1
            if tensor_parallel_of(model) == 1 and expert_parallel_of(model) > 1:
                return wrapping.FSDP2_OF_EXPERTS_OVER_REPLICAS if replicated else wrapping.FSDP2_OF_EXPERTS
            if tensor_parallel_of(model) > 1:
                return wrapping.FSDP2_OF_SPREAD_OVER_REPLICAS if replicated else wrapping.FSDP2_OF_SPREAD
            return wrapping.FSDP2_OVER_REPLICAS if _mesh_dimensions(model) > 1 else wrapping.FSDP2
        if ddp is not None and isinstance(module, ddp):
            return wrapping.DDP
    return wrapping.SPREAD if tensor_parallel_of(model) > 1 else wrapping.NOTHING


_WRAPPERS = (
    ("deepspeed.runtime.engine", "DeepSpeedEngine"),
    ("torch.nn.parallel.distributed", "DistributedDataParallel"),
    ("torch.distributed.fsdp", "FullyShardedDataParallel"),
    ("torch.distributed.fsdp", "FSDPModule"),
)


def tensor_parallel_of(model: Any) -> int:
    """Ranks that compute one copy of the model together: what transformers calls `tp` on the weights' meshes."""
    return _ranks_of(model, "tp")


def expert_parallel_of(model: Any) -> int:
    """Ranks that hold whole experts each: what transformers calls `ep` on the experts' meshes."""
    return _ranks_of(model, "ep")


def _ranks_of(model: Any, dimension: str) -> int:
    """Of a dimension of the weights' meshes; 1 where they have none of that name."""
    for parameter in model.parameters():
        mesh = getattr(parameter, "device_mesh", None)
        names = getattr(mesh, "mesh_dim_names", None) or ()
        if mesh is not None and dimension in names:
            return int(mesh.size(names.index(dimension)))
    return 1


def _mesh_dimensions(model: Any) -> int:
    """Dimensions of the mesh over which FSDP2 shards and replicates: 2 for HSDP."""
    for parameter in model.parameters():
        placements = getattr(parameter, "placements", None)
        mesh = getattr(parameter, "device_mesh", None)
        if placements is not None and mesh is not None:
            sharded = [at for at, placement in enumerate(placements) if placement.is_shard()]
            copied = [at for at, placement in enumerate(placements) if placement.is_replicate()]
            return 2 if sharded and any(mesh.size(at) > 1 for at in copied) else 1
    return 1


def wrapped_classes(model: Any) -> Iterator[str]:
    """Names of the classes around the model, the model's own, then those of its sharded or checkpointed units."""
    seen: dict[str, None] = {}
    for layer in layers(model):
        seen[type(layer).__name__] = None
    sharded = _class("torch.distributed.fsdp", "FSDPModule")
    wrappers = tuple(
        kind
        for kind in (
            _class("torch.distributed.fsdp", "FullyShardedDataParallel"),
            _class("torch.distributed.algorithms._checkpoint.checkpoint_wrapper", "CheckpointWrapper"),
        )
        if kind is not None
    )
    for module in model.modules():
        if sharded is not None and isinstance(module, sharded):
            seen[type(module).__name__] = None
        elif wrappers and isinstance(module, wrappers):
            inner = getattr(module, "_fsdp_wrapped_module", None) or getattr(module, "_checkpoint_wrapped_module", None)
            seen[f"{type(module).__name__}({type(inner).__name__})"] = None
    return iter(seen)


def layers(model: Any) -> Iterator[Any]:
    """The model, and what it wraps, down to the user's own."""
    at = model
    names = ("module", "_fsdp_wrapped_module", "_orig_mod", "_forward_module")
    for _ in range(8):
        yield at
        children = getattr(at, "_modules", {})
        inner = next((children[name] for name in names if children.get(name) is not None), None)
        if inner is None:
            return
        at = inner


def mixed_precision(model: Any, autocast: str | None) -> str | None:
    """`no`, `bf16`, `fp16`, `fp8`, as accelerate names them."""
    if model is not None and _computes_in_float8(model):
        return "fp8"
    engine = _class("deepspeed.runtime.engine", "DeepSpeedEngine")
    for layer in layers(model) if model is not None and engine is not None else ():
        if isinstance(layer, engine):
            return "bf16" if layer.bfloat16_enabled() else "fp16" if layer.fp16_enabled() else "no"
    stated = _shared_state("AcceleratorState").get("_mixed_precision")
    if stated == "fp8" and model is not None:
        stated = "bf16"  # no layer computes in float8: autocast alone is left (Accelerator.__init__)
    if isinstance(stated, str) and stated != "no":
        return stated
    if autocast is not None:
        return _SHORT.get(autocast, autocast)
    return _fsdp_precision(model) if model is not None else stated


def _computes_in_float8(model: Any) -> bool:
    """Whether any layer is torchao's, Transformer Engine's or MS-AMP's."""
    torchao = _class("torchao.float8.float8_linear", "Float8Linear")
    for module in model.modules():
        if torchao is not None and isinstance(module, torchao):
            return True
        if type(module).__module__.split(".")[0] in ("transformer_engine", "msamp"):
            return True
    return False


_SHORT = {"bfloat16": "bf16", "float16": "fp16"}


def _fsdp_precision(model: Any) -> str:
    for module in model.modules():
        policy = getattr(module, "mixed_precision", None) if hasattr(module, "_handle") else None
        if policy is None and hasattr(module, "_get_fsdp_state"):
            policy = getattr(module._get_fsdp_state(), "_mp_policy", None)
        dtype = getattr(policy, "param_dtype", None)
        if dtype is not None:
            name = str(dtype).removeprefix("torch.")
            return _SHORT.get(name, "no")
    return "no"


def says_checkpointing(models: Iterable[Any]) -> bool:
    """Whether the models say of themselves that they recompute; what they do is seen in a backward pass."""
    wrapper = _class("torch.distributed.algorithms._checkpoint.checkpoint_wrapper", "CheckpointWrapper")
    for model in models:
        for module in model.modules():
            if getattr(module, "gradient_checkpointing", False) is True:
                return True
            if wrapper is not None and isinstance(module, wrapper):
                return True
    return False


def optimizer_name(optimizer: Any) -> str:
    """Qualified class, with the implementation where it is not the default: `torch.optim.adamw.AdamW (fused)`."""
    inner = getattr(optimizer, "basic_optimizer", None) or optimizer  # a DeepSpeedEngine's
    kind = type(inner)
    fused = getattr(inner, "defaults", {}).get("fused")
    return f"{kind.__module__}.{kind.__qualname__}{' (fused)' if fused else ''}"


def is_compiled(models: Iterable[Any]) -> bool:
    """Whether any part runs as torch.compile made it."""
    optimized = _class("torch._dynamo.eval_frame", "OptimizedModule")
    return any(
        getattr(module, "_compiled_call_impl", None) is not None
        or (optimized is not None and isinstance(module, optimized))
        for model in models
        for module in model.modules()
    )


def runs_compiled(models: Iterable[Any]) -> bool:
    """Whether a compiled part really made a graph: torch.compile can be switched off, or give up, in silence."""
    counters = _class("torch._dynamo.utils", "counters")
    graphs = counters["stats"]["unique_graphs"] if counters else 0
    return graphs > 0 and is_compiled(models)


def _class(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)


def _shared_state(name: str) -> dict[str, Any]:
    kind = _class("accelerate.state", name)
    state = getattr(kind, "_shared_state", None)
    return state if isinstance(state, dict) else {}
