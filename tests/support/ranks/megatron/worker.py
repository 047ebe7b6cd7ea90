"""One rank of a launch: runs every case under Megatron-core's own schedule and writes what its allocator saw (I/O).

python -m tests.support.ranks.megatron.worker FOLDER RANK WORLD_SIZE
"""

import functools
import gc
import json
import os
import sys
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.support.cpu_reference import mark, measure
from tests.support.ranks.megatron.case import ITERATIONS, MegatronCase
from tests.support.ranks.megatron.shim import without_cuda
from tests.support.ranks.settled import settled_collectives
from tests.support.ranks.worker import dump


def config_of(case: MegatronCase) -> Any:
    """Megatron-core's TransformerConfig, with every fusion off."""
    from megatron.core.transformer.transformer_config import TransformerConfig

    model, experts = case.model, case.model.experts
    words: dict[str, Any] = {}
    if experts is not None:
        words = {
            "num_moe_experts": experts.count, "moe_router_topk": experts.chosen, "moe_ffn_hidden_size": experts.width,
            "moe_token_dispatcher_type": "alltoall", "moe_aux_loss_coeff": 0.0, "moe_router_dtype": None,
            "moe_shared_expert_intermediate_size": case.shared or None,
            "moe_expert_capacity_factor": 1.0, "moe_pad_expert_input_to_capacity": True,
        }  # fmt: skip
    return TransformerConfig(
        num_layers=model.layers, hidden_size=model.hidden, ffn_hidden_size=model.intermediate,
        num_attention_heads=model.heads, add_bias_linear=False, hidden_dropout=0.0, attention_dropout=0.0,
        tensor_model_parallel_size=case.tensor, pipeline_model_parallel_size=case.pipeline,
        virtual_pipeline_model_parallel_size=case.virtual if case.virtual > 1 else None,
        expert_model_parallel_size=case.expert, expert_tensor_parallel_size=1,
        use_cpu_initialization=True, params_dtype=torch.bfloat16, pipeline_dtype=torch.bfloat16, bf16=True,
        gradient_accumulation_fusion=False, masked_softmax_fusion=False, bias_activation_fusion=False,
        bias_dropout_fusion=False, apply_rope_fusion=False, deallocate_pipeline_outputs=case.deallocates,
        # arguments.py: validate_args of Megatron-LM: of virtual stages what is sent goes beside what is computed.
        overlap_p2p_comm=case.virtual > 1, batch_p2p_comm=case.virtual == 1,
        recompute_granularity="selective" if case.again else None, recompute_modules=list(case.again) or None,
        attention_softmax_in_fp32=False, apply_query_key_layer_scaling=False, **words,
    )  # fmt: skip


class _LastLayer(torch.nn.Linear):
    def forward(self, input: torch.Tensor, weight: Any = None, runtime_gather_output: Any = None) -> Any:
        return super().forward(input).float(), None


def chunks_of(case: MegatronCase, config: Any) -> list[Any]:
    """This rank's stages, each in Megatron's DDP."""
    from megatron.core import parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec

    found = []
    for place in range(case.virtual):
        stage = parallel_state.get_pipeline_model_parallel_rank() + place * case.pipeline
        model = GPTModel(
            config=config,
            transformer_layer_spec=get_gpt_layer_local_spec(num_experts=case.experts or None),
            vocab_size=case.model.padded_vocabulary(case.tensor),
            max_sequence_length=case.seq_len,
            pre_process=stage == 0,
            post_process=stage == case.pipeline * case.virtual - 1,
            share_embeddings_and_output_weights=False,
            position_embedding_type="learned_absolute",
            vp_stage=place if case.virtual > 1 else None,
        )
        if case.values and model.post_process:
            # mbridge/utils/layer.py: LinearForLastLayer without sequence parallel.
            model.output_layer = _LastLayer(config.hidden_size, 1, bias=False)
        model.bfloat16()
        ddp = DistributedDataParallelConfig(grad_reduce_in_fp32=False, overlap_grad_reduce=False)
        found.append(DistributedDataParallel(config=config, ddp_config=ddp, module=model, disable_bucketing=True))
    return found


def run_case(case: MegatronCase, losses: list[list[float]]) -> Any:
    """What the allocator saw of two steps."""
    from megatron.core import parallel_state
    from megatron.core.pipeline_parallel import get_forward_backward_func, schedules
    from megatron.core.tensor_parallel import vocab_parallel_cross_entropy

    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=case.tensor, pipeline_model_parallel_size=case.pipeline,
        virtual_pipeline_model_parallel_size=case.virtual if case.virtual > 1 else None,
        expert_model_parallel_size=case.expert, expert_tensor_parallel_size=1,
    )  # fmt: skip
    config = config_of(case)
    torch.manual_seed(0)

    def body() -> Any:
        mark("start")
        chunks = chunks_of(case, config)
        count = [0]

        def loss_of(mask: torch.Tensor, output: torch.Tensor) -> Any:
            if case.forward_only:
                return torch.tensor(1.0), {"log_probs": output}
            loss = torch.sum(output.view(-1).float() * mask.view(-1))
            found.append(float(loss))
            return loss, {}

        def forward_step(_: Any, model: Any) -> Any:
            shape = (case.micro_batch, case.seq_len)
            inner = model.module
            ids = torch.randint(0, 200, shape) if inner.pre_process else None
            positions = torch.arange(case.seq_len).repeat(case.micro_batch, 1) if inner.pre_process else None
            labels = torch.randint(0, 200, shape) if inner.post_process else None
            mask = torch.ones(shape) if inner.post_process else None
            out = model(ids, positions, None, labels=None if case.verl or case.values else labels)
            if case.verl and inner.post_process:
                # Of one packed sample: Float16Module's fp32, then verl/workers/actor/megatron_actor.py:
                # logits_processor.
                out = out.float()
                out.div_(1.0)
                out = -vocab_parallel_cross_entropy(out, labels)
            return out, functools.partial(loss_of, mask)

        run = get_forward_backward_func()
        real_forward, real_backward = schedules.forward_step, schedules.backward_step

        def counted(call: Any) -> Any:
            def inner(*args: Any, **kwargs: Any) -> Any:
                found = call(*args, **kwargs)
                mark(f"action:{count[0]}")
                count[0] += 1
                return found

            return inner

        schedules.forward_step, schedules.backward_step = counted(real_forward), counted(real_backward)
        try:
            for iteration in range(ITERATIONS):
                found: list[float] = []
                for chunk in chunks:
                    chunk.zero_grad_buffer()
                mark(f"begin:{iteration}")
                with torch.set_grad_enabled(not case.forward_only):
                    run(
                    forward_step_func=forward_step, data_iterator=[None] * len(chunks) if case.virtual > 1 else None,
                    model=chunks if case.virtual > 1 else chunks[0], num_microbatches=case.micro_batches,
                    seq_length=case.seq_len, micro_batch_size=case.micro_batch, forward_only=case.forward_only,
                )  # fmt: skip
                mark(f"step:{iteration}")
                losses.append(found)
        finally:
            schedules.forward_step, schedules.backward_step = real_forward, real_backward
        return chunks

    try:
        return measure(body)
    finally:
        parallel_state.destroy_model_parallel()


def main(folder: Path, rank: int, world_size: int) -> None:
    """Runs all cases, one after the other."""
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK=str(rank))
    store = dist.FileStore(str(folder / "meeting"), world_size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=1500))
    for number, values in enumerate(json.loads((folder / "cases.json").read_text())):
        case, losses = MegatronCase(**values), list[list[float]]()
        try:
            with without_cuda(), settled_collectives("all_to_all_single"):
                text = dump(run_case(case, losses))
            kept = json.loads(text) | {"losses": losses}
        except Exception:
            kept = {"error": traceback.format_exc()}
        (folder / f"case-{number}-rank-{rank}.json").write_text(json.dumps(kept))
        gc.collect()
        dist.barrier()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
