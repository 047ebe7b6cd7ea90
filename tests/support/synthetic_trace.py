"""Step traces made by hand: only what the speed model reads is filled in."""

from dataclasses import dataclass

import numpy as np

from gpu_plan.planner.trace.events import StepTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operator: FLOPs and bytes are fixed + per_sample x micro batch."""

    name: str = "mm"
    phase: int = 0
    flops: float = 0.0
    flops_per_sample: float = 0.0
    moved: float = 0.0
    moved_per_sample: float = 0.0
    writes: tuple[tuple[int, int], ...] = ()
    """(fixed, per sample) bytes of each storage it writes."""
    module: str = ""
    reads: tuple[int, ...] = ()
    """Storages that it reads, by their place among those of all."""
    shapes: tuple[str, ...] = ()
    """Of what it writes, where it is not `[]`."""


def trace_of(*ops: Op, tokens_per_sample: int = 4096) -> StepTrace:
    """A trace with these operators and no allocations but what they write."""
    names = sorted({op.name for op in ops})
    modules = sorted({"", *(op.module for op in ops)})
    storages = [storage for op in ops for storage in op.writes]
    counts = [len(op.writes) for op in ops]
    none = np.zeros(0, np.int64)
    per_storage = np.zeros(len(storages), np.int64)
    return StepTrace(
        kind=none,
        subject=none,
        bytes_fixed=np.array([fixed for fixed, _ in storages], np.int64),
        bytes_per_sample=np.array([slope for _, slope in storages], np.int64),
        category=per_storage,
        tensor_module=per_storage,
        tensor_operator=per_storage,
        tensor_shape=[shape for op in ops for shape in (op.shapes or ("[]",) * len(op.writes))],
        tensor_parameter=per_storage - 1,
        modules=modules,
        operator_names=names,
        op_name=np.array([names.index(op.name) for op in ops], np.int64),
        op_module=np.array([modules.index(op.module) for op in ops], np.int64),
        op_phase=np.array([op.phase for op in ops], np.int64),
        op_flops_fixed=np.array([op.flops for op in ops], np.float64),
        op_flops_per_sample=np.array([op.flops_per_sample for op in ops], np.float64),
        op_bytes_fixed=np.array([op.moved for op in ops], np.float64),
        op_bytes_per_sample=np.array([op.moved_per_sample for op in ops], np.float64),
        op_reads_at=np.concatenate([[0], np.cumsum([len(op.reads) for op in ops])]).astype(np.int64),
        op_reads=np.array([storage for op in ops for storage in op.reads], np.int64),
        op_writes_at=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        op_writes=np.arange(len(storages), dtype=np.int64),
        parameters=[],
        buffer_bytes=[],
        inputs=[],
        samples=(1,),
        tokens_per_sample=tokens_per_sample,
    )


def decoder_trace(
    *,
    layers: int = 32,
    hidden: int = 4096,
    mlp: int = 14336,
    kv: int = 1024,
    vocab: int = 128256,
    seq: int = 4096,
    recompute: bool = False,
) -> StepTrace:
    """A Llama-like decoder per sample in 16 bits: matrix products, attention, and 60 passes over the hidden state."""
    ops: list[Op] = []
    state = 2.0 * seq * hidden
    shapes = [(hidden, hidden), (hidden, kv), (hidden, kv), (hidden, hidden)] + [(hidden, mlp)] * 3

    def product(k: int, n: int, phase: int) -> Op:
        return Op(
            phase=phase,
            flops_per_sample=2.0 * seq * k * n,
            moved=2.0 * k * n,
            moved_per_sample=2.0 * seq * (k + n),
        )

    def block(phase: int, times: int, attention: Op) -> list[Op]:
        products = [product(k, n, phase) for k, n in shapes for _ in range(times)]
        passes = [Op(name="mul", phase=phase, moved_per_sample=2 * state) for _ in range(20 * times)]
        return [*products, attention, *passes]

    forward = 4.0 * seq * seq * hidden
    for _ in range(layers):
        name = "_scaled_dot_product_cudnn_attention"
        ops += block(0, 1, Op(name=name, phase=0, flops_per_sample=forward, moved_per_sample=3 * state))
        backward = Op(name=f"{name}_backward", phase=1, flops_per_sample=2.5 * forward, moved_per_sample=6 * state)
        ops += block(1, 2, backward)
        if recompute:
            ops += block(2, 1, Op(name=name, phase=2, flops_per_sample=forward, moved_per_sample=3 * state))
    ops += [product(hidden, vocab, phase) for phase in (0, 1, 1)]
    return trace_of(*ops, tokens_per_sample=seq)
