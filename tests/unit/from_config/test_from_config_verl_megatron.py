"""verl's Megatron workers as a document: degrees, what leaves the device, samples of a data parallel rank."""

import tomllib
from typing import Any

import pytest

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.from_config.documents.find import of_script, of_table
from gpu_plan.planner.options.several.read import read_job

SCRIPT = """set -x
COMMON_VPP=${COMMON_VPP:-null}
ACTOR_VPP=${ACTOR_VPP:-$COMMON_VPP}
PATH_OF=${MODEL_OF:-${OTHER_MODEL:-Qwen/Qwen2-7B-Instruct}}
python3 -m verl.trainer.main_ppo --config-path=config \\
    --config-name='ppo_megatron_trainer.yaml' \\
    algorithm.adv_estimator=grpo \\
    data.train_batch_size=1024 \\
    data.max_prompt_length=1024 \\
    data.max_response_length=1024 \\
    actor_rollout_ref.model.path=${PATH_OF} \\
    actor_rollout_ref.actor.ppo_mini_batch_size=256 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 \\
    actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2 \\
    actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 \\
    actor_rollout_ref.actor.megatron.virtual_pipeline_model_parallel_size=${ACTOR_VPP} \\
    actor_rollout_ref.actor.megatron.param_offload=True \\
    actor_rollout_ref.actor.megatron.optimizer_offload=True \\
    actor_rollout_ref.actor.megatron.grad_offload=True \\
    actor_rollout_ref.actor.use_kl_loss=True \\
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4 \\
    actor_rollout_ref.rollout.name=vllm \\
    actor_rollout_ref.rollout.n=5 \\
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4 \\
    actor_rollout_ref.ref.megatron.pipeline_model_parallel_size=2 \\
    actor_rollout_ref.ref.megatron.tensor_model_parallel_size=2 \\
    trainer.n_gpus_per_node=8
"""
PARAM, STATES = "actor.megatron.param_offload=True", "actor.megatron.optimizer_offload=True"


def job(text: str) -> dict[str, Any]:
    written = of_script(text, "run.sh", None)
    assert written is not None
    assert not written.not_read
    found = tomllib.loads(written.toml("H100"))
    read_job(found, "run.sh")
    return found


def test_workers_have_the_degrees_of_the_file() -> None:
    found = job(SCRIPT)
    assert list(found["models"]) == ["actor", "engine", "reference"]
    actor, reference = found["models"]["actor"], found["models"]["reference"]
    assert (actor["model"], actor["strategy"]) == ("Qwen/Qwen2-7B-Instruct", "megatron")
    for one in (actor, reference):
        assert (one["tensor_parallel"], one["pipeline_parallel"], one["between"]) == (2, 2, "host")
    assert actor["settings"] == [
        "megatron.cross_entropy=verl", "megatron.overlap=false", "megatron.mtp_layers=0",
        "megatron.gradient_fusion=false",
        "megatron.deallocate_outputs=false", "megatron.activation_fusion=false",
    ]  # fmt: skip
    # megatron.yaml: recompute_granularity is null; no FSDP worker's default stands.
    assert actor["checkpointing"] == "none"
    assert "loss" not in actor
    assert [phase["does"] for phase in found["phases"]] == [
        "sync", "generate", "log-probabilities", "log-probabilities", "train",
    ]  # fmt: skip


def test_samples_are_divided_by_the_data_parallel_ranks() -> None:
    written = of_script(SCRIPT, "run.sh", None)
    assert written is not None
    # 256 prompts of 5 answers; two copies of four devices each.
    assert (written.gpus, written.global_batch) == (8, 1280)
    dynamic = SCRIPT
    for words in ("actor.ppo_micro_batch_size_per_gpu=4", "rollout.log_prob_micro_batch_size_per_gpu=4"):
        dynamic = dynamic.replace(f"actor_rollout_ref.{words}", "")
    dynamic = dynamic.replace("ref.log_prob_micro_batch_size_per_gpu=4", "actor.use_dynamic_bsz=True")
    update = job(dynamic)["phases"][-1]
    assert (update["max_tokens"], update["samples"]) == (16384, 256 * 5 // 2)
    # megatron_actor.py: max_token_len * context_parallel_size.
    context = dynamic
    for whose in ("actor", "ref"):
        degree = f"{whose}.megatron.pipeline_model_parallel_size=2"
        shared = f"{degree} actor_rollout_ref.{whose}.megatron.context_parallel_size=2"
        context = context.replace(degree, shared)
    update = job(context)["phases"][-1]
    assert (update["max_tokens"], update["samples"]) == (2 * 16384, 256 * 5)


def test_a_fused_head_is_a_loss_of_its_own() -> None:
    fused = SCRIPT.replace("rollout.n=5", "rollout.n=5 actor_rollout_ref.model.use_fused_kernels=True")
    assert job(fused)["models"]["actor"]["settings"][0] == "megatron.cross_entropy=verl-fused"


@pytest.mark.parametrize(
    ("gone", "between"), [((PARAM,), "gradients"), ((STATES,), "optimizer"), ((PARAM, STATES), None)]
)
def test_what_is_offloaded_leaves(gone: tuple[str, ...], between: str | None) -> None:
    text = SCRIPT
    for word in gone:
        text = text.replace(word, word.replace("True", "False"))
    assert job(text)["models"]["actor"].get("between") == between


def test_a_yaml_that_takes_in_its_configuration() -> None:
    workers = {"tensor_model_parallel_size": 4}
    table = {
        "defaults": ["ppo_megatron_trainer", "_self_"],
        "algorithm": {"adv_estimator": "grpo"},
        "actor_rollout_ref": {
            "actor": {"use_dynamic_bsz": True, "megatron": workers},
            "rollout": {"name": "sglang"},
        },
    }
    written = of_table(table, "job.yaml", "a/b")
    assert written is not None
    actor = written.models["actor"]
    assert (actor["strategy"], actor["tensor_parallel"], actor["pipeline_parallel"]) == ("megatron", 4, 1)
    # 256 prompts of one answer, on two copies of four devices.
    assert written.phases[-1]["samples"] == 128


def test_a_critic_has_an_update_of_its_own_and_the_actors_degrees() -> None:
    words = "tensor_model_parallel_size=2", "optimizer_offload=True"
    critic = " ".join(f"critic.megatron.{word}" for word in words)
    text = SCRIPT.replace("=grpo", "=gae").replace(
        "rollout.n=5", f"rollout.n=1 critic.ppo_micro_batch_size_per_gpu=8 critic.model.path=c/d {critic}"
    )
    found = job(text)["models"]["critic"]
    assert (found["model"], found["head"], found["train"]) == ("c/d", "value", True)
    assert (found["tensor_parallel"], found["pipeline_parallel"], found["between"]) == (2, 2, "gradients")
    assert "megatron.cross_entropy=verl" not in found["settings"]
    phases = {phase["name"]: phase for phase in job(text)["phases"]}
    assert phases["update of the critic"]["micro_batch"] == phases["values"]["micro_batch"] == 8


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "=grpo",
            "=gae critic.megatron.tensor_model_parallel_size=4",
            "critic.megatron.tensor_model_parallel_size is 4: a critic of other degrees",
        ),
        ("ref.megatron.tensor_model_parallel_size=2", "ref.megatron.tensor_model_parallel_size=4", "other degrees"),
        ("${ACTOR_VPP}", "2", "virtual stages: their passes forward only"),
        ("rollout.n=5", "rollout.n=5 actor_rollout_ref.model.lora.rank=8", "lora: adapters"),
        (
            "rollout.n=5",
            "rollout.n=5 +actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_cpu_offload=True",
            "an optimizer that steps on the host",
        ),
        ("n_gpus_per_node=8", "n_gpus_per_node=6", "copies of 4 devices, which do not divide the 6"),
        ("'ppo_megatron_trainer.yaml'", "'my_megatron.yaml'", "a file that is not beside it says the rest"),
    ],
)
def test_what_a_document_does_not_have_is_one_line(old: str, new: str, said: str) -> None:
    assert old in SCRIPT
    with pytest.raises(InputError) as refused:
        of_script(SCRIPT.replace(old, new), "run.sh", None)
    message = str(refused.value)
    assert said in message
    assert message.startswith("run.sh")
    assert len(message.splitlines()) == 1
