"""What a rank of Megatron-core holds for good: buffers of parameters and gradients, main parameters, moments.

megatron/core/distributed/distributed_data_parallel.py, param_and_grad_buffer.py; optimizer/distrib_optimizer.py
(_build_model_and_main_param_groups: an fp32 copy of the rank's own slice of every parameter),
optimizer/optimizer.py (Float16OptimizerWithFloat16Params: of every parameter). Moments are made by the first step of
Transformer Engine's FusedAdam (pytorch/optimizers/fused_adam.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gpu_plan.planner.megatron import buffers
from gpu_plan.planner.megatron.buffers import Held
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.memory.stream.moments import point
from gpu_plan.planner.trace.events import Category, ParameterInfo

_NARROW, _HALF, _WIDE = 1, 2, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRules:
    """How parameters, gradients and the optimizer's states are kept."""

    data_parallel: int
    """Ranks with other samples or other tokens (`dp_cp`), over which dense parameters are sharded."""
    expert_data_parallel: int
    """Ranks that hold the same experts."""
    instances: int = 1
    """Copies of the sharded states (`--num-distributed-optimizer-instances`), each over so many fewer ranks."""
    distributed: bool = True
    """`--use-distributed-optimizer`."""
    overlap: bool = False
    """`--overlap-grad-reduce`: buckets of a size, each padded."""
    gradient_bytes: int = _WIDE
    """Of an element in the buffer: 4, or 2 (`--grad-reduce-in-bf16`)."""
    main_bytes: int = _WIDE
    """Of an element of the main parameters (`--main-params-dtype`)."""
    widened: bool = True
    """Whether gradients in 16 bits are brought to fp32 before the step; a precision-aware optimizer reads them as they
    are."""
    moment_bytes: tuple[int, int] = (_WIDE, _WIDE)
    """`--exp-avg-dtype`, `--exp-avg-sq-dtype`."""
    float8_stored: bool = False
    """Whether weights of linear layers are stored in float8 (`--fp8-param-gather`), in buffers of their own."""
    data_rank: int = 0
    """Which of the data parallel ranks it is: slices of the last one hold the padding, and of whole parameters each has
    its own."""
    muon: Literal["no", "whole", "layer_wise"] = "no"
    """Whether Muon steps what are matrices (`--optimizer muon`): of every parameter, or of those that are this rank's
    (with `--use-distributed-optimizer --no-use-layer-wise-param-layout`)."""


def place_states(
    builder: StreamBuilder, chunks: Sequence[Sequence[ParameterInfo]], shared: frozenset[str], rules: StateRules
) -> int:
    """Buffers of every chunk's dense and expert parameters, and states of this rank's share; elements that it steps."""
    total = 0
    for number, chunk in enumerate(chunks):
        # overlapping is on for all but the first bucket of later chunks: distributed_data_parallel.py disables buckets
        # for chunks that are not the first (disable_bucketing).
        overlap = rules.overlap and number == 0
        for experts in (False, True):
            own = [parameter for parameter in chunk if parameter.experts is experts and parameter.trainable]
            ranks = rules.expert_data_parallel if experts else rules.data_parallel
            # param_and_grad_buffer.py: a buffer for each type of parameters and gradients.
            for size in (_HALF, _NARROW):
                alike = [parameter for parameter in own if stored_bytes(parameter, rules) == size]
                if alike and rules.muon != "no":
                    total += place_muon(builder, alike, rules, 1 if rules.muon == "whole" else ranks)
                elif alike:
                    total += _place(builder, alike, shared, rules, ranks, overlap, size)
    return total


def stored_bytes(parameter: ParameterInfo, rules: StateRules) -> int:
    """Of an element: linear layers of Transformer Engine hold float8 where it is asked for, all else 16 bits."""
    linear, weight = parameter.name.split(".")[-2:] if "." in parameter.name else ("", parameter.name)
    narrow = rules.float8_stored and linear.startswith("linear_") and weight.startswith("weight")
    return _NARROW if narrow else _HALF


def _place(
    builder: StreamBuilder,
    parameters: Sequence[ParameterInfo],
    shared: frozenset[str],
    rules: StateRules,
    ranks: int,
    overlap: bool,
    size: int,
) -> int:
    held = [Held(parameter.numel, parameter.name in shared) for parameter in parameters]
    load = builder.at_load
    if rules.distributed:
        ranks //= rules.instances
        numel = buffers.padded(held, ranks, buffers.bucket_size(overlap, rules.data_parallel))
        builder.alloc(load(), numel * size, Category.PARAMETERS, "parameter buffer")
        share = -(-numel // ranks)
    else:
        numel = share = buffers.unpadded(held)
        for parameter in parameters:
            builder.alloc(load(), parameter.numel * size, Category.PARAMETERS, "weight", parameter.name)
    builder.alloc(load(), numel * rules.gradient_bytes, Category.GRADIENTS, "gradient buffer")
    if not rules.distributed:
        _place_main_copies(builder, parameters, rules)
        _place_main_gradients(builder, share, rules)
        return share
    builder.alloc(load(), share * rules.main_bytes, Category.OPTIMIZER_STATE, "main parameters")
    _place_main_gradients(builder, share, rules)
    for name, width in zip(("exp_avg", "exp_avg_sq"), rules.moment_bytes, strict=True):
        builder.alloc(builder.at_step(0), share * width, Category.OPTIMIZER_STATE, name)
    return share


def _place_main_copies(builder: StreamBuilder, parameters: Sequence[ParameterInfo], rules: StateRules) -> None:
    """A main parameter and both moments of each, one parameter after the other (Float16OptimizerWithFloat16Params:
    `param.detach().clone().float()`; fused_adam.py: initialize_state)."""
    for parameter in parameters:
        copied = builder.alloc(builder.at_load(), parameter.numel * _HALF, Category.TEMPORARY, "clone", parameter.name)
        size = parameter.numel * rules.main_bytes
        builder.alloc(builder.at_load(), size, Category.OPTIMIZER_STATE, "main parameters", parameter.name)
        builder.free(builder.at_load(), copied)
    for parameter in parameters:
        for name, width in zip(("exp_avg", "exp_avg_sq"), rules.moment_bytes, strict=True):
            size = parameter.numel * width
            builder.alloc(builder.at_step(0), size, Category.OPTIMIZER_STATE, name, parameter.name)


def _place_main_gradients(builder: StreamBuilder, share: int, rules: StateRules) -> None:
    """Gradients of the main parameters, where the buffer is not fp32: a copy made by the step, which goes when the next
    iteration begins (distrib_optimizer.py: _copy_model_grads_to_main_grads; training.py: train_step)."""
    if rules.gradient_bytes == _WIDE or not rules.widened:
        return
    first = next(one for one in builder.passes if one.iteration == 1)
    made = builder.alloc(builder.at_step(0), share * _WIDE, Category.GRADIENTS, "main gradients")
    builder.free(point(first.segment, -2), made)
    builder.alloc(builder.at_step(1), share * _WIDE, Category.GRADIENTS, "main gradients")


def place_muon(builder: StreamBuilder, parameters: Sequence[ParameterInfo], rules: StateRules, ranks: int) -> int:
    """States under Muon (optimizer/emerging_optimizers.py: _is_nonlinear_or_embedding, TensorParallelMuon): one moment
    of a matrix, FusedAdam's two of the words' embedding, of the head and of what is no matrix; elements that it steps.

    Weights and gradients are whole on each rank: layer-wise sharing turns the distributed optimizer's buffers off
    (megatron/training/arguments.py: validate_args). A step's own tensors are not laid out: a micro batch holds more.
    """
    load = builder.at_load
    for parameter in parameters:
        builder.alloc(load(), parameter.numel * _HALF, Category.PARAMETERS, "weight", parameter.name)
    whole = sum(parameter.numel for parameter in parameters)
    builder.alloc(load(), whole * rules.gradient_bytes, Category.GRADIENTS, "gradient buffer")
    own = owned(parameters, ranks, rules.data_rank % ranks)
    for parameter in own:
        builder.alloc(load(), parameter.numel * rules.main_bytes, Category.OPTIMIZER_STATE, "main parameters")
    for parameter in own:
        module = parameter.name.rpartition(".")[0]
        matrix = len(parameter.shape) == _MATRIX and not module.endswith(_WORDS)
        for name in ("momentum_buffer",) if matrix else ("exp_avg", "exp_avg_sq"):
            builder.alloc(builder.at_step(0), parameter.numel * _WIDE, Category.OPTIMIZER_STATE, name)
    return sum(parameter.numel for parameter in own)


_MATRIX = 2
_WORDS = ("word_embeddings", "output_layer")
"""What language_module.py: setup_embeddings_and_output_layer marks; learned positions are a matrix to Muon."""


def owned(parameters: Sequence[ParameterInfo], ranks: int, rank: int) -> list[ParameterInfo]:
    """Whole parameters that a rank steps: smallest first, dealt out to the ranks there and back
    (optimizer/layer_wise_optimizer.py: _shard_params_ping_pong)."""
    turns = [*range(ranks), *reversed(range(ranks))]
    dealt = enumerate(sorted(parameters, key=lambda parameter: parameter.numel))
    return [parameter for place, parameter in dealt if turns[place % len(turns)] == rank]
