"""What a Megatron-core job's ranks send each other, and that its step waits for it."""

import json
from dataclasses import replace

import pytest

from benchmarks.accuracy.megatron.jobs import Job, stream
from benchmarks.real.megatron_operators import RESULT, summed
from gpu_plan.planner.hardware.catalog import load_gpus
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.megatron.architecture import Architecture, Experts
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.evaluate import Evaluator
from gpu_plan.planner.speed.in_step import collectives_of
from gpu_plan.planner.speed.model import StepTime
from gpu_plan.planner.speed.operators import collect
from gpu_plan.planner.speed.rates import efficiency_data, training_share
from gpu_plan.planner.speed.roofline import RooflineModel
from gpu_plan.planner.strategy.megatron.layouts import layouts
from gpu_plan.planner.strategy.megatron.planned import buffer_bytes
from gpu_plan.planner.strategy.megatron.states import StateRules
from gpu_plan.planner.strategy.registry import STRATEGIES
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.provider import TraceProvider
from gpu_plan.planner.workload.training import Attention, Checkpointing, Precision, Workload

TOKENS, HIDDEN, LAYERS = 128, 256, 2
MODEL = Architecture(layers=LAYERS, hidden=HIDDEN, intermediate=512, heads=8, groups=8, head_dim=32, vocabulary=1024)
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "intermediate_size": 2816,
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 32000,
    "max_position_embeddings": 1024,
}  # fmt: skip


def calls(model: Architecture, layout: Layout, *, asynchronous: bool = False):
    job = Job(
        model=model,
        layout=layout,
        rules=StateRules(data_parallel=1, expert_data_parallel=1),
        micro_batch=1,
        micro_batches=1,
        seq_len=TOKENS,
        capability=(9, 0),
    )
    trace = stream(job, 0)[1]
    return collectives_of(trace, layout.tensor, layout.expert, 1, asynchronous=asynchronous)


def test_tokens_that_are_shared_out_are_gathered_and_reduced():
    found = calls(MODEL, Layout(tensor=2, sequence=True))
    whole = TOKENS * HIDDEN * 2
    forward = {(one.kind, one.bytes): one.count for one in found if one.phase == "forward"}
    assert forward["all_gather", whole] == 2 * LAYERS + 1  # each block's first product, and the head
    assert forward["reduce_scatter", whole] == 2 * LAYERS + 1  # each block's last product, and the embedding
    backward = {(one.kind, one.bytes): one.count for one in found if one.phase == "backward"}
    assert backward["all_gather", whole] == 4 * LAYERS + 2
    assert backward["reduce_scatter", whole] == 2 * LAYERS + 1


def test_an_all_to_all_carries_every_chosen_token():
    experts = Experts(count=4, chosen=2, width=64)
    found = calls(replace(MODEL, experts=experts), Layout(expert=2))
    largest = max(one.bytes for one in found if one.kind == "all_to_all")
    assert largest == TOKENS * experts.chosen * HIDDEN * 2


def test_products_run_beside_what_backward_gathers_again():
    """Forward reads at once what it gathers; backward gathers a product's input while the other product runs."""
    found = calls(MODEL, Layout(tensor=2, sequence=True), asynchronous=True)
    assert all(not one.products for one in found if one.phase == "forward")
    hidden = [one for one in found if one.products]
    assert {one.kind for one in hidden} == {"all_gather", "reduce_scatter"}
    # The projection back to the hidden size: tokens, hidden, and this rank's half of the intermediate.
    assert any(one.products == 2 * TOKENS * HIDDEN * 512 for one in hidden)


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")

    def time(gpus: str, tied: bool = False, samples: int = 1, **given) -> StepTime:
        config = CONFIG | {"tie_word_embeddings": tied}
        path = folder / f"tied-{tied}" / "config.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(config))
        cluster = parse_cluster(gpus)
        settings = tuple(sorted(given.pop("settings", {}).items()))
        workload = Workload(
            seq_len=1024,
            precision=Precision("bf16-mixed"),
            attention=Attention.FLASH,
            strategy="megatron",
            settings=settings,
            **{"tensor_parallel": 1, "pipeline_parallel": 1, "context_parallel": 1, "expert_parallel": 1, **given},
        )
        (layout,) = layouts(workload, cluster, Checkpointing.NONE)
        provider = TraceProvider(
            source=resolve(str(path)), device=device_kind(cluster.gpu), attention="flash", adapter=None
        )
        evaluator = Evaluator(
            provider=provider, workload=workload, cluster=cluster, speed=RooflineModel(), config=config
        )
        family = Family(
            strategy=STRATEGIES["megatron"],
            offload=Offload.NONE,
            checkpointing=Checkpointing.NONE,
            tensor_parallel=layout.tensor,
            layout=layout,
        )
        return evaluator.judge(family, Batch(micro_batch=samples, accumulation_steps=4)).time

    return time


def test_the_step_waits_for_ranks_that_share_its_layers(judged):
    alone, shared = judged("1xH100", samples=32), judged("2xH100", samples=32, tensor_parallel=2)
    assert alone.exposed_communication_seconds == 0
    assert shared.exposed_communication_seconds > 0
    computed = shared.forward_seconds + shared.backward_seconds
    assert shared.step_seconds >= computed + shared.exposed_communication_seconds
    assert shared.low_seconds < shared.step_seconds < shared.high_seconds
    (axis,) = shared.degrees()
    assert (axis.axis, axis.ranks) == ("tensor", 2)
    assert axis.exposed_seconds == pytest.approx(shared.exposed_communication_seconds)
    small = judged("2xH100", tensor_parallel=2)
    assert next(one.seconds for one in small.degrees()) > 0
    assert small.exposed_communication_seconds == 0, "the host issues longer than the device computes and sends"


def test_data_parallel_ranks_of_shared_layers_lie_across_nodes(judged):
    """Eight ranks share a node's layers: gradients are summed over the nodes, by each GPU's own part of the network."""
    within = judged("8xH100", tensor_parallel=4, settings={"megatron.overlap": "false"})
    across = judged("2x8xH100", tensor_parallel=8, settings={"megatron.overlap": "false"})

    def seconds(time: StepTime) -> float:
        return next(one.seconds for one in time.degrees() if one.axis == "data")

    # Twice the ranks hold half the parameters each; the network is slower by more than that.
    assert seconds(across) > seconds(within)


def test_the_first_and_the_last_stage_sum_the_gradients_of_a_weight_that_they_share(judged):
    """finalize_model_grads.py: _allreduce_word_embedding_grads, in fp32, once a step."""
    times = {tied: judged("2xH100", tied=tied, pipeline_parallel=2) for tied in (False, True)}
    assert not [one for one in times[False].degrees() if one.axis == "data"]
    (shared,) = [one for one in times[True].degrees() if one.axis == "data"]
    assert (shared.ranks, shared.calls) == (2, 1)
    assert shared.bytes == CONFIG["vocab_size"] * CONFIG["hidden_size"] * 4
    assert shared.seconds > 0
    assert shared.exposed_seconds == pytest.approx(shared.seconds)


def test_gradients_that_no_product_adds_are_added_behind_it(judged):
    fused = judged("1xH100")
    added = judged("1xH100", settings={"megatron.gradient_fusion": "false"})
    assert added.step_seconds > fused.step_seconds


def test_the_step_passes_over_the_buffer_of_gradients():
    """Cleared and checked once by its bytes; over several data parallel ranks scaled too, which reads and writes it."""
    layout, rules = Layout(), StateRules(data_parallel=1, expert_data_parallel=1)
    job = Job(
        model=MODEL, layout=layout, rules=rules, micro_batch=1, micro_batches=1, seq_len=TOKENS, capability=(9, 0)
    )
    trace = stream(job, 0)[1]
    elements = sum(one.numel for one in trace.parameters)
    assert buffer_bytes(trace, rules) == elements * 4 * 2
    assert buffer_bytes(trace, replace(rules, data_parallel=8)) == elements * 4 * 4


def test_weight_gradients_that_add_to_their_buffer_take_longer():
    """Of nine weights each has one such product where it is fused, and none where the gradient is a tensor."""
    rules = StateRules(data_parallel=1, expert_data_parallel=1)

    def found(fused: bool):
        layout = Layout(fused_gradients=fused)
        job = Job(
            model=MODEL, layout=layout, rules=rules, micro_batch=1, micro_batches=1, seq_len=TOKENS, capability=(9, 0)
        )
        return collect(stream(job, 0)[1])

    fused, apart = found(True), found(False)
    assert fused.count[fused.accumulates].sum() == 4 * LAYERS + 1
    assert set(fused.phase[fused.accumulates].tolist()) == {1}
    assert not apart.accumulates.any()


def test_what_one_source_measured_has_a_spread():
    slow, expected = training_share(load_gpus()["b200"])
    assert slow < expected


def test_products_of_experts_are_counted_whatever_the_last_tensor_of_a_trace_is():
    """A gradient's buffer is no tensor of the trace (-1 among what is read), and the last one's size may be no whole
    number of bytes a sample: Mixtral with TP 2 × PP 2 × EP 4 at micro batches of 4 to 16."""
    model = replace(MODEL, experts=Experts(count=4, chosen=2, width=128))
    rules = StateRules(data_parallel=1, expert_data_parallel=1)
    job = Job(
        model=model, layout=Layout(), rules=rules, micro_batch=1, micro_batches=1, seq_len=TOKENS, capability=(9, 0)
    )
    trace = stream(job, 0)[1]
    odd = replace(trace, tensor_shape=[*trace.tensor_shape[:-1], "[<67*B+2621>] uint8"])
    ours, theirs = collect(trace), collect(odd)
    assert (ours.bytes_fixed.sum(), ours.flops_fixed.sum()) == (theirs.bytes_fixed.sum(), theirs.flops_fixed.sum())


def test_a_jobs_host_cost_is_the_median_of_its_rounds_and_the_sum_that_of_the_jobs():
    jobs = {
        name: [{"recording": one, "checkpointed": 2 * one} for one in rounds]
        for name, rounds in {"TP 1": (1.9, 1.5, 1.6), "TP 2": (1.4, 9.0, 1.3), "TP 8": (1.5, 1.5, 1.5)}.items()
    }
    assert summed(jobs) == {
        "recording": {"slow": 1.6, "expected": 1.5, "fast": 1.4},
        "checkpointed": {"slow": 3.2, "expected": 3.0, "fast": 2.8},
    }


def test_what_megatrons_python_costs_the_host_is_what_its_program_measured():
    found = json.loads(RESULT.read_text())
    assert {layers: summed(jobs) for layers, jobs in found["rounds"].items()} == found["issuing"]
    rows = {row["kind"]: row for row in efficiency_data()["issuing"]}
    for layers, kinds in found["issuing"].items():
        for kind, told in kinds.items():
            row = rows[layers.replace("-", "_") + ("_checkpointed" if kind == "checkpointed" else "")]
            assert {name: row[name] for name in told} == told
