"""Megatron-core without torch: schedules, stages, buffers, and arguments that Megatron-LM's own parser knows."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpu_plan.executor.launch.engines import megatron_bridge as bridge
from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.megatron import buffers, schedules, settings, stages
from gpu_plan.planner.megatron.architecture import Architecture, Experts, LatentAttention
from gpu_plan.planner.megatron.arguments import Run, command_of, words_of
from gpu_plan.planner.megatron.buffers import Held
from gpu_plan.planner.megatron.huggingface import architecture_of
from gpu_plan.planner.megatron.layout import PARTS, Layout
from gpu_plan.planner.options.settings import SETTINGS, parse_settings
from gpu_plan.planner.pipeline.schedules import Action, Kind, in_flight

TABLE = json.loads(
    (Path(__file__).parents[3] / "benchmarks" / "data" / "megatron" / "flags.json").read_text(encoding="utf-8")
)
LLAMA = Architecture(
    layers=8, hidden=64, intermediate=128, heads=8, groups=2, head_dim=8, vocabulary=1000, rotary_base=500000.0
)
RUN = Run(
    name="some model",
    seq_len=128,
    micro_batch=2,
    global_batch=32,
    half="bfloat16",
    settings={"megatron.precision_aware": "true", "megatron.grad_dtype": "bfloat16"},
    nodes=2,
    per_node=8,
    clips_to=1.0,
)


def test_1f1b_is_megatrons_own_order():
    layout = Layout(pipeline=4)
    assert [in_flight(schedules.actions(layout, rank, 8)) for rank in range(4)] == [4, 3, 2, 1]
    first = schedules.actions(layout, 2, 3)
    kinds = "".join(action.kind for action in first)
    assert kinds == "FFBFBB"


def test_interleaved_warms_up_over_all_chunks():
    layout = Layout(pipeline=2, virtual=2)
    order = schedules.actions(layout, 0, 4)
    assert order[:5] == (
        Action(Kind.FORWARD, 0, 0),
        Action(Kind.FORWARD, 0, 1),
        Action(Kind.FORWARD, 2, 0),
        Action(Kind.FORWARD, 2, 1),
        Action(Kind.FORWARD, 0, 2),
    )
    assert order[5] == Action(Kind.BACKWARD, 2, 0)
    assert sorted((a.stage, a.micro_batch) for a in order if a.kind is Kind.BACKWARD) == sorted(
        (stage, index) for stage in (0, 2) for index in range(4)
    )
    assert "groups of 2" in (schedules.refused(layout, 5) or "")


def test_groups_of_micro_batches_are_those_of_the_argument():
    """schedules.py: get_schedule_table, PP 2 with groups of 3 and 5 micro batches over 2 chunks."""
    layout = Layout(pipeline=2, virtual=2, group=3)
    forwards = [a for a in schedules.actions(layout, 0, 5) if a.kind is Kind.FORWARD]
    assert [a.micro_batch for a in forwards] == [0, 1, 2, 0, 1, 2, 3, 4, 3, 4]
    assert [a.stage for a in forwards] == [0, 0, 0, 2, 2, 2, 0, 0, 2, 2]
    assert schedules.refused(layout, 5) is None
    assert "groups of 3" in (schedules.refused(layout, 4) or "")
    assert "fewer than the pipeline ranks" in (schedules.refused(replace(layout, group=1), 4) or "")
    assert "add --vpp" in (schedules.refused(replace(layout, virtual=1), 4) or "")


def test_states_are_shared_out_within_a_copy_of_them():
    given = {"megatron.optimizer_instances": "2"}
    assert settings.refused_instances(given, LLAMA, Layout(tensor=2), 8) is None
    assert "does not divide 3 data" in (settings.refused_instances(given, LLAMA, Layout(tensor=2), 6) or "")
    whole = given | {"megatron.distributed_optimizer": "false"}
    assert "distributed optimizer" in (settings.refused_instances(whole, LLAMA, Layout(tensor=2), 8) or "")
    words = words_of(LLAMA, Layout(pipeline=2, virtual=2, group=4), replace(RUN, settings=given))
    assert {word for word in words if word.startswith("--")} <= set(TABLE["flags"])
    assert words[words.index("--num-distributed-optimizer-instances") + 1] == "2"


def test_gradients_of_fp16_weights_are_added_up_in_fp16():
    assert settings.gradient_bytes({}, "bfloat16") == 4
    assert settings.gradient_bytes({}, "float16") == 2
    wide = {"megatron.grad_dtype": "float32"}
    assert settings.gradient_bytes(wide, "float16") == 4
    words = words_of(LLAMA, Layout(), replace(RUN, half="float16", settings=wide))
    assert "--accumulate-allreduce-grads-in-fp32" in words


def test_layers_are_shared_out_as_megatron_does():
    counts = [cut.end - cut.first for cut in stages.cuts(12, Layout(pipeline=4, first_layers=2, last_layers=2))]
    assert counts == [2, 4, 4, 2]
    assert "not divide 12 layers" in (stages.refused(12, Layout(pipeline=4, virtual=2)) or "")
    counted = Layout(pipeline=4, virtual=2, embedding_counts=True, loss_counts=True)
    assert [cut.end - cut.first for cut in stages.cuts(14, counted)] == [1, 2, 2, 2, 2, 2, 2, 1]
    assert stages.refused(14, counted) is None
    assert "15 over 8 stages" in (stages.refused(13, counted) or "")
    assert "fewer than the 16 stages" in (stages.refused(12, Layout(pipeline=16)) or "")


def test_buffers_are_padded_for_the_ranks():
    held = [Held(100), Held(1000), Held(70)]
    assert buffers.padded(held, 4, None) == 1280  # 70 -> 128, +1000 -> 1128 -> 1152, +100 = 1252 -> 1280
    assert buffers.padded([Held(100), Held(1000, True)], 4, None) == 1024 + 128
    assert buffers.unpadded(held) == 1170


@pytest.mark.parametrize(
    ("model", "layout"),
    [
        (LLAMA, Layout(tensor=2, pipeline=2, virtual=2, sequence=True, recompute="full")),
        (replace(LLAMA, norm="layer", gated=False, biases=True, rotary=False, positions=128), Layout(local=True)),
        (
            replace(
                LLAMA,
                query_norm=True,
                experts=Experts(
                    count=8,
                    chosen=2,
                    width=32,
                    shared_width=32,
                    score="sigmoid",
                    biased=True,
                    groups=4,
                    chosen_groups=2,
                    scale=2.5,
                    balance="seq_aux_loss",
                    balance_weight=1e-4,
                    dense_layers=1,
                ),
            ),
            Layout(
                expert=4,
                context=2,
                recompute="selective",
                cross_entropy="te",
                fused_gradients=False,
                wide_router=True,
                capacity=1.0,
            ),
        ),
        (
            replace(
                LLAMA,
                latent=LatentAttention(
                    query_rank=16,
                    key_value_rank=8,
                    head_dim=8,
                    rotary_dim=4,
                    value_dim=8,
                    stretched=(("rotary_scaling_factor", 40.0), ("mscale", 0.707)),
                ),
            ),
            Layout(
                pipeline=4,
                first_layers=1,
                last_layers=1,
                attention_mask=True,
                loss_counts=True,
                fused_activation=False,
                cross_entropy="verl",
            ),
        ),
    ],
)
def test_every_argument_is_one_of_megatron_lm(model, layout):
    assert TABLE["commit"].startswith("d98e8a64dd")
    assert len(TABLE["sha256"]) == 64
    words = words_of(model, layout, RUN)
    for place, word in enumerate(words):
        if not word.startswith("--"):
            continue
        known = TABLE["flags"][word]
        value = words[place + 1] if place + 1 < len(words) else "--"
        assert value.startswith("--") == (known["takes"] == "nothing"), word
        if "choices" in known and word != "--attention-backend":
            assert value in known["choices"], word


def test_the_command_is_quoted_but_for_what_each_node_fills_in():
    command = command_of(LLAMA, Layout(tensor=2, sequence=True), RUN)
    assert command.startswith("CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun --nproc-per-node 8 --nnodes 2 --node-rank $NODE")
    assert shlex.split(command)[-1] == "some model"
    assert "--clip-grad 1.0" in command


def test_models_that_gpt_model_is_not_are_named():
    with pytest.raises(UsageError, match="model type t5 is not built"):
        architecture_of({"model_type": "t5"}, "t5")
    with pytest.raises(UsageError, match="without a configuration"):
        architecture_of(None, "own.py")
    found = architecture_of(
        {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 8, "num_hidden_layers": 2,
         "intermediate_size": 128, "vocab_size": 100, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
        "llama",
    )  # fmt: skip
    assert (found.groups, found.head_dim, found.rotary_factor) == (8, 8, 8.0)


@pytest.mark.parametrize(
    ("layout", "length", "said"),
    [
        (Layout(tensor=3), 128, "--tp 3 does not divide 8"),
        (Layout(expert=2), 128, "no experts"),
        (Layout(context=4), 100, "give 104"),
        (Layout(context=2, attention="unfused"), 128, "kernels that share tokens"),
        (Layout(expert_tensor=2), 128, "no experts to split"),
    ],
)
def test_degrees_that_a_model_cannot_take(layout, length, said):
    assert said in (settings.refused(LLAMA, layout, length) or "")


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        (Layout(expert=3), "--ep 3 does not divide 8 experts"),
        (Layout(expert_tensor=3), "does not divide an expert's 32"),
        (Layout(tensor=2), "need sequence parallel"),
        (Layout(dispatcher="flex"), "outside of torch's allocator"),
        (Layout(dispatcher="allgather", capacity=1.0), "pads what alltoall sends"),
        (Layout(load=1.5), "every rank has all experts"),
        (Layout(expert=2, load=2.5), "at most 2"),
        (Layout(expert=2, load=0.0), "above 0"),
        (Layout(expert=2, load=1.5, capacity=1.0), "drop one of them"),
    ],
)
def test_ways_to_experts_that_are_refused(layout, said):
    model = replace(LLAMA, experts=Experts(count=8, chosen=2, width=32))
    assert said in (settings.refused(model, layout, 128) or "")


def test_flash_attention_has_no_kernel_for_latent_attention():
    latent = LatentAttention(query_rank=None, key_value_rank=8, head_dim=8, rotary_dim=4, value_dim=8)
    assert "wider than its values" in (
        settings.refused(replace(LLAMA, latent=latent), Layout(attention="flash"), 128) or ""
    )


def test_experts_of_a_configuration():
    found = architecture_of(
        {"model_type": "deepseek_v3", "hidden_size": 64, "num_attention_heads": 8, "num_hidden_layers": 4,
         "intermediate_size": 128, "vocab_size": 100, "kv_lora_rank": 8, "q_lora_rank": None, "qk_nope_head_dim": 8,
         "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 16, "num_experts_per_tok": 4, "n_group": 4,
         "topk_group": 2, "moe_intermediate_size": 32, "n_shared_experts": 1, "first_k_dense_replace": 3,
         "routed_scaling_factor": 2.5, "num_nextn_predict_layers": 1,
         "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0}},
        "deepseek",
    )  # fmt: skip
    assert found.experts is not None
    assert found.latent is not None
    assert [found.experts.has(layer) for layer in range(4)] == [False, False, False, True]
    assert (found.experts.score, found.experts.biased, found.experts.groups) == ("sigmoid", True, 4)
    assert found.next_tokens == 1
    assert dict(found.latent.stretched) == {"rotary_scaling_factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0}


@pytest.mark.parametrize(
    ("layers", "pipeline", "ends"), [(126, 16, (7, 7, 8)), (61, 16, (3, 2, 4)), (61, 8, (7, 6, 8))]
)
def test_layers_that_do_not_divide_are_told_with_ends_that_come_out(layers, pipeline, ends):
    first, last, each = ends
    said = stages.refused(layers, Layout(pipeline=pipeline)) or ""
    assert f"megatron.first_layers={first} and megatron.last_layers={last} leave {each}" in said
    assert stages.refused(layers, Layout(pipeline=pipeline, first_layers=first, last_layers=last)) is None


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (("moe",), "no experts, which moe is of"),
        (("moe_act",), "no experts, which moe_act is of"),
        (("shared_experts",), "no shared experts"),
        (("mla_up_proj",), "latent attention, which this model does not have"),
    ],
)
def test_parts_that_a_model_does_not_have_are_not_run_again(parts, said):
    layout = Layout(recompute="selective", recompute_modules=parts)
    assert said in (settings.refused(LLAMA, layout, 128) or "")
    assert settings.refused(LLAMA, replace(layout, recompute="none"), 128) is None


def test_recompute_modules_are_some_of_those_there_are():
    assert parse_settings(["megatron.recompute_modules=mlp, layernorm"]) == (
        ("megatron.recompute_modules", "layernorm,mlp"),
    )
    with pytest.raises(UsageError, match="'mlps' is none of core_attn"):
        parse_settings(["megatron.recompute_modules=mlps"])
    assert tuple(SETTINGS["megatron.recompute_modules"].choices) == PARTS
    assert Layout(recompute="selective", recompute_modules=("mlp",)).runs_again("mlp")
    assert not Layout(recompute="full", recompute_modules=("mlp",)).runs_again("mlp")


def test_a_recipe_of_megatron_bridge_takes_several_modules_as_a_list():
    words = ("--recompute-modules", "layernorm", "mlp", "--recompute-granularity", "selective", "--bf16", "--tp", "2")
    assert bridge._flags(words) == {
        "recompute_modules": ["layernorm", "mlp"], "recompute_granularity": "selective", "bf16": True, "tp": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("model", "layout", "said"),
    [
        (LLAMA, Layout(context=16, context_comm="a2a"), "does not divide a rank's"),
        (replace(LLAMA, intermediate=1000), Layout(float8="delayed"), "no multiple of 16"),
    ],
)
def test_heads_and_widths_that_are_not_taken(model, layout, said):
    assert said in (settings.refused(model, layout, 1024) or "")


def test_models_mapped_beside_llama():
    glm = {"model_type": "glm4_moe", "hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2,
           "num_hidden_layers": 4, "intermediate_size": 128, "vocab_size": 100, "head_dim": 16, "attention_bias": True,
           "n_routed_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 32, "n_shared_experts": 1,
           "first_k_dense_replace": 1, "use_qk_norm": True, "partial_rotary_factor": 0.5, "norm_topk_prob": True,
           "num_nextn_predict_layers": 1}  # fmt: skip
    found = architecture_of(glm, "glm")
    assert found.experts is not None
    assert (found.query_norm, found.query_biases, found.rotary_share, found.next_tokens) == (True, True, 0.5, 1)
    experts = found.experts
    assert (experts.score, experts.biased, experts.first_softmax, experts.balance) == (
        "sigmoid", True, False, "seq_aux_loss"
    )  # fmt: skip
    phi = {"model_type": "phi3", "hidden_size": 64, "num_attention_heads": 8, "num_hidden_layers": 4,
           "intermediate_size": 128, "vocab_size": 100}  # fmt: skip
    assert architecture_of(phi, "phi").rotary_share == 1.0
    with pytest.raises(UsageError, match="longrope"):
        architecture_of({**phi, "rope_scaling": {"type": "longrope"}}, "phi")


def test_arguments_of_float8_of_exchanged_heads_and_of_prediction_are_megatrons():
    model = replace(LLAMA, next_tokens=1, rotary_share=0.5)
    layout = Layout(context=2, context_comm="a2a", float8="tensorwise", float8_stored=True)
    words = words_of(model, layout, RUN)
    assert {word for word in words if word.startswith("--")} <= set(TABLE["flags"])
    given = bridge._flags(words)
    assert (given["cp_comm_type"], given["fp8_format"], given["fp8_recipe"]) == ("a2a", "hybrid", "tensorwise")
    assert (given["fp8_param_gather"], given["mtp_num_layers"], given["rotary_percent"]) == (True, 1, 0.5)
    assert "--cp-comm-type" not in words_of(LLAMA, Layout(), RUN)


@pytest.mark.parametrize("name", ["MixtralForCausalLM", "Phi3ForCausalLM", "GPT2LMHeadModel"])
def test_a_class_that_megatron_bridge_has_no_mapping_of_gets_no_recipe(name):
    plan = SimpleNamespace(command="torchrun pretrain_gpt.py --micro-batch-size 1 --global-batch-size 8 --bf16")
    saved = SimpleNamespace(plan=plan, model=SimpleNamespace(class_name=name))
    own = SimpleNamespace(own_model="megatron-core")
    target = SimpleNamespace(saved=saved, traits=own, strategy=SimpleNamespace(name="megatron"), made_by="")
    with pytest.raises(UsageError, match=f"no mapping of {name}: --to megatron-lm"):
        bridge.launch_files(target)
    saved.model.class_name = "LlamaForCausalLM"
    assert "AutoBridge" in bridge.launch_files(target).files[bridge.RECIPE]


def test_stages_that_do_not_divide_get_ends_of_their_own():
    found = stages.evened(126, Layout(pipeline=16))
    assert (found.first_layers, found.last_layers) == (7, 7)
    assert stages.refused(126, found) is None
    assert stages.evened(128, Layout(pipeline=16)) == Layout(pipeline=16)
    counted = Layout(pipeline=16, embedding_counts=True, loss_counts=True)
    assert stages.evened(126, counted) == counted
