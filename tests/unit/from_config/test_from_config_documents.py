"""OpenRLHF's and verl's command lines as job documents: what a shell script says, what a tool adds, what is refused."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gpu_plan.cli import main
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.from_config.documents.find import of_script, of_table
from gpu_plan.planner.from_config.shell.lines import line_of
from gpu_plan.planner.from_config.shell.words import command_words
from gpu_plan.planner.options.several.read import read_job

VERL = """set -x
model_path=Qwen/Qwen2-7B-Instruct
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_files="$train_files" \\
    data.max_prompt_length=1024 \\
    actor_rollout_ref.model.path=$model_path \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16 \\
    actor_rollout_ref.actor.use_kl_loss=True \\
    actor_rollout_ref.actor.fsdp_config.param_offload=True \\
    actor_rollout_ref.actor.fsdp_config.optimizer_offload=True \\
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8 \\
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=8 \\
    actor_rollout_ref.rollout.name=sglang \\
    actor_rollout_ref.rollout.n=5 \\
    trainer.n_gpus_per_node=2 $@
"""
OPENRLHF = """ray job submit -- python3 -m openrlhf.cli.train_ppo_ray \\
   --actor.num_gpus_per_node 4 \\
   --vllm.num_engines 2 --vllm.tensor_parallel_size 2 \\
   --train.colocate_all --vllm.enable_sleep --ds.enable_sleep \\
   --actor.model_name_or_path a/b --reward.model_name_or_path c/d \\
   --train.micro_batch_size 8 --rollout.micro_batch_size 16 \\
   --ds.zero_stage 3 --actor.gradient_checkpointing_enable --unheard.of 3
"""


def job(text: str, model: str | None = None) -> dict[str, Any]:
    written = of_script(text, "run.sh", model)
    assert written is not None
    found = tomllib.loads(written.toml("H100"))
    read_job(found, "here")
    assert found == written.table()
    return found


def test_words_of_a_command() -> None:
    text = """A=1
B="${A}-${C:-two}"
LIST=(
  three=3   # said
  # four=4
)
# python -m some.module old
bash -c "python -m some.module $B $D \\
  # a comment between
  'five six' \\
  "${LIST[@]}" \\
  --key {x}" &>> log
"""
    assert command_words(text, "some.module") == ("1-two", "$D", "five six", "three=3", "--key", "{x}")
    assert command_words(text, "another") is None
    assert command_words("GPUS=(0 1 2)  # three\nN=${#GPUS[@]}\nmod n=$N ${#OTHER[@]}", "mod") == (
        "n=3",
        "$OTHER",
    )
    assert command_words("x=some.module\nsome.module a | tee log", "some.module") == ("a",)


GRPO = """python mason.py --gpus 8 -- source setup.sh \\&\\& python open_instruct/grpo_fast.py \\
  --model_name_or_path a/b --pack_length 6144 --max_prompt_token_length 2048 --response_length 4096 \\
  --deepspeed_stage 3 --num_learners_per_node 4 2 --num_mini_batches 2 --vllm_num_engines 2 --gradient_checkpointing
"""


def test_open_instructs_learners() -> None:
    found = job(GRPO)
    assert (found["prompt_len"], found["completion_len"]) == (2048, 4096)
    assert [(one["name"], one.get("micro_batch")) for one in found["phases"]] == [
        ("weight sync", None), ("rollout", None), ("reference log-probabilities", 1), ("old log-probabilities", 1),
        ("update", 1),
    ]  # fmt: skip
    assert [found["models"][role]["strategy"] for role in ("policy", "reference")] == ["zero3", "zero3"]
    engine = found["models"]["engine"]
    assert (engine["where"], engine["copies"], engine["tensor_parallel"]) == ("server", 2, 1)
    written = of_script(GRPO, "run.sh", None)
    assert written is not None
    assert written.gpus == 8
    assert any("takes the longer of the two" in note for note in written.notes)
    many = of_script(GRPO.replace("--vllm_num_engines 2", "--vllm_num_engines 5"), "run.sh", None)
    assert many is not None
    assert (many.gpus, "engine" in many.models) == (6, False)
    assert any("are no whole nodes of 8" in note for note in many.notes)
    alone = job(GRPO.replace("--gradient_checkpointing", "--single_gpu_mode --vllm_enforce_eager"))
    assert (alone["models"]["engine"]["share"], alone["models"]["engine"]["eager"]) == (0.9, True)
    for said, why in (("--deepspeed_stage 0", "without sharding"), ("--num_learners_per_node x", "whole numbers")):
        with pytest.raises(InputError, match=why):
            of_script(GRPO.replace("--num_mini_batches 2", said), "run.sh", None)


def test_verl_with_its_own_defaults() -> None:
    found = job(VERL)
    models = found["models"]
    assert list(models) == ["actor", "engine", "reference"]
    assert models["actor"]["strategy"] == "fsdp1"
    assert models["actor"]["between"] == "host"
    assert models["actor"]["flat_parameters"]
    assert models["reference"]["offload"] == "all"
    engine = {"engine": "sglang", "share": 0.5, "tensor_parallel": 2, "sleep": True, "max_num_seqs": 256}
    assert models["engine"] == {"model": "Qwen/Qwen2-7B-Instruct", **engine}
    assert (found["prompt_len"], found["completion_len"]) == (1024, 512)
    assert [(one["name"], one.get("micro_batch")) for one in found["phases"]] == [
        ("weight sync", None), ("rollout", None), ("old log-probabilities", 8), ("reference log-probabilities", 8),
        ("update", 16),
    ]  # fmt: skip
    written = of_script(VERL, "run.sh", None)
    assert written is not None
    assert (written.gpus, written.global_batch) == (2, 256 * 5)


def test_verl_with_a_critic_has_an_update_of_its_own() -> None:
    text = VERL.replace("adv_estimator=grpo", "adv_estimator=gae").replace(
        "trainer.n_gpus", "critic.ppo_micro_batch_size_per_gpu=4 critic.model.path=e/f trainer.n_gpus"
    )
    found = job(text)
    assert found["models"]["critic"]["head"] == "value"
    assert {"name": "update of the critic", "does": "train", "models": ["critic"], "micro_batch": 4} in found["phases"]


def test_verl_cuts_its_batches_by_their_tokens() -> None:
    dynamic = VERL.replace("trainer.n_gpus", "actor_rollout_ref.actor.use_dynamic_bsz=True trainer.n_gpus")
    found = {one["name"]: one for one in job(dynamic)["phases"]}
    # 256 prompts of 5 answers on two devices; the whole rollout, of 1,024 prompts, is scored.
    assert (found["update"]["max_tokens"], found["update"]["samples"]) == (16384, 640)
    assert (found["old log-probabilities"]["max_tokens"], found["old log-probabilities"]["samples"]) == (16384, 2560)
    written = of_script(dynamic, "run.sh", None)
    assert written is not None
    assert written.global_batch is None


def test_a_model_that_the_file_takes_from_elsewhere_is_named_on_the_command_line() -> None:
    text = VERL.replace("Qwen/Qwen2-7B-Instruct", "$BASE")
    with pytest.raises(InputError, match=r"name the model behind it \(plan from-config run.sh MODEL\)"):
        of_script(text, "run.sh", None)
    written = of_script(text, "run.sh", "a/b")
    assert written is not None
    assert written.models["actor"]["model"] == "a/b"


def test_verl_reduces_in_fp32_unless_it_is_told() -> None:
    """verl/workers/fsdp_workers.py: mixed_precision; another type is one line."""
    assert job(VERL)["models"]["actor"]["reduce_dtype"] == "float32"
    said = "actor_rollout_ref.actor.fsdp_config.mixed_precision.reduce_dtype={} trainer.n_gpus"
    found = job(VERL.replace("trainer.n_gpus", said.format("bf16")))
    assert found["models"]["actor"]["reduce_dtype"] == "bfloat16"
    with pytest.raises(InputError, match="float32 and bfloat16"):
        job(VERL.replace("trainer.n_gpus", said.format("fp16")))
    assert "reduce_dtype" not in job(VERL.replace("per_node=2", "per_node=1"))["models"]["actor"]


def test_verls_older_reward_model_is_a_worker_of_its_own() -> None:
    """RewardModelWorker: a number for each token under FSDP's own CPUOffload."""
    said = (
        "reward_model.enable=True reward_model.model.path=c/d reward_model.micro_batch_size_per_gpu=4"
        " reward_model.model.fsdp_config.param_offload=False trainer.n_gpus"
    )
    found = job(VERL.replace("trainer.n_gpus", said))
    assert found["models"]["reward"] == {
        "model": "c/d", "strategy": "fsdp1", "offload": "all", "head": "value", "attention": "flash",
    }  # fmt: skip
    rewards = next(phase for phase in found["phases"] if phase["name"] == "rewards")
    assert (rewards["does"], rewards["micro_batch"]) == ("forward", 4)
    tokens = said.replace("micro_batch_size_per_gpu=4", "forward_max_token_len_per_gpu=9000")
    found = job(VERL.replace("trainer.n_gpus", f"reward_model.use_dynamic_bsz=True {tokens}"))
    assert next(phase for phase in found["phases"] if phase["name"] == "rewards")["max_tokens"] == 9000


def test_a_recipe_of_verl_reads_the_file_beside_its_main() -> None:
    """recipe/dapo/main_dapo.py: dapo_trainer.yaml, which takes in verl's own ppo_trainer.yaml."""
    files: dict[str, dict[str, Any]] = {
        "recipe/dapo/config/dapo_trainer.yaml": {
            "defaults": ["ppo_trainer", "_self_"], "data": {"max_response_length": 4096},
        },
        "verl/trainer/config/ppo_trainer.yaml": {
            "actor_rollout_ref": {"rollout": {"name": "vllm", "max_num_seqs": 77}}, "data": {"max_response_length": 8},
        },
    }  # fmt: skip

    def fetch(path: str, _: str) -> dict[str, Any]:
        if path not in files:
            raise InputError(path)
        return files[path]

    text = VERL.replace("verl.trainer.main_ppo", "recipe.dapo.main_dapo").replace("rollout.name=sglang", "rollout.n=4")
    written = of_script(text, "run.sh", None, fetch)
    assert written is not None
    found = written.table()
    assert found["completion_len"] == 4096
    assert (found["models"]["engine"]["engine"], found["models"]["engine"]["max_num_seqs"]) == ("vllm", 77)


def test_verl_cuts_sequences_among_ranks() -> None:
    cut = "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2 trainer.n_gpus"
    written = of_script(VERL.replace("trainer.n_gpus", cut), "run.sh", None)
    assert written is not None
    assert [one["micro_batch"] for one in written.phases[2:]] == [4, 4, 8]
    assert any("Ulysses" in note and "at most 0.1 GiB for each 1,024" in note for note in written.notes)


def test_verl_as_older_files_have_it() -> None:
    written = of_script(VERL.replace("_per_gpu=16", "=16"), "run.sh", None)
    assert written is not None
    assert written.phases[-1]["micro_batch"] == 8  # of two devices
    assert any("an older verl's word" in note for note in written.notes)


@pytest.mark.parametrize(
    ("said", "loss"),
    [
        ("actor.entropy_coeff=0", "verl-0.8"),
        ("actor.entropy_coeff=0.001", "verl-0.8-entropy"),
        ("actor.entropy_coeff=0.001 actor_rollout_ref.actor.entropy_checkpointing=True", "verl-0.8"),
        ("model.use_fused_kernels=True", "verl-0.8-fused"),
    ],
)
def test_whose_log_probabilities_verl_takes(said: str, loss: str) -> None:
    models = job(VERL.replace("rollout.n=5", said))["models"]
    assert {models[role]["loss"] for role in ("actor", "reference")} == {loss}


def test_a_yaml_of_verl_may_name_another_of_its_keys() -> None:
    actor = {"ppo_micro_batch_size_per_gpu": 4, "use_dynamic_bsz": False}
    rollout = {"name": "vllm", "log_prob_use_dynamic_bsz": "${actor_rollout_ref.actor.use_dynamic_bsz}",
               "log_prob_micro_batch_size_per_gpu": "${actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu}",
    }  # fmt: skip
    table = {"actor_rollout_ref": {"model": {"path": "a/b"}, "actor": actor, "rollout": rollout},
             "algorithm": {"adv_estimator": "grpo"}}  # fmt: skip
    written = of_table(table, "a.yaml", None)
    assert written is not None
    assert [one.get("micro_batch") for one in written.phases] == [None, None, 4, 4]


def test_sums_in_a_script_are_reckoned() -> None:
    text = "A=1024\nB=$((A * 2))\nnproc=2\nmodule --x $((A + B)) --y $(expr 16 / $nproc) --z $((C * 2)) --w $((2**9))\n"
    assert command_words(text, "module") == (
        "--x", "3072", "--y", "8", "--z", "$((C * 2))", "--w", "$((2**9))"
    ) or command_words(text, "module") == (
        "--x", "3072", "--y", "8", "--z", "$((C", "*", "2))", "--w", "$((2**9))"
    )  # fmt: skip


def test_a_command_line_of_swift_is_its_table() -> None:
    text = "nproc=2\nNPROC_PER_NODE=$nproc \\\nswift rlhf \\\n --rlhf_type cpo --model a/b --lora_rank 8 --do_eval\n"
    line = line_of(text, "run.sh")
    assert line is not None
    assert (line.kind, line.processes) == ("ms-swift", 2)
    assert line.content == {"rlhf_type": "cpo", "model": "a/b", "lora_rank": 8, "do_eval": True}
    assert line_of("llamafactory-cli train a.yaml\n", "run.sh") is None
    assert line_of("megatron rlhf --model a/b\n", "run.sh") is None
    with pytest.raises(InputError, match="which the script does not set"):
        line_of("swift rlhf --model $M\n", "run.sh")


def test_open_instruct() -> None:
    text = {"model_name_or_path": "a/b", "use_slow_tokenizer": True, "num_epochs": 1, "max_seq_length": 2048,
            "per_device_train_batch_size": 1, "gradient_accumulation_steps": 16, "beta": 5, "loss_type": "dpo_norm",
            "zero_stage": 3, "use_lora": True, "use_flash_attn": True}  # fmt: skip
    written = of_table(text, "a.yaml", None)
    assert written is not None
    assert written.not_read == ()
    policy = written.models["policy"]
    assert (policy["strategy"], policy["lora_rank"], policy["loss"]) == ("zero3", 64, "open-instruct")
    assert [phase["micro_batch"] for phase in written.phases] == [2]
    assert any("--grad-accum 16" in note for note in written.notes)
    assert of_table({**text, "num_epochs": None, "beta": None, "loss_type": None}, "a.yaml", None) is not None
    with pytest.raises(InputError, match="use_qlora is not said"):
        of_table({**text, "use_qlora": True}, "a.yaml", None)
    supervised = {key: value for key, value in text.items() if key not in ("num_epochs", "beta")}
    assert of_table(supervised, "a.yaml", None) is None


def test_openrlhf_with_everything_on_the_same_devices() -> None:
    found = job(OPENRLHF)
    models = found["models"]
    assert list(models) == ["actor", "engine", "reference", "reward", "critic"]
    assert models["actor"]["between"] == models["critic"]["between"] == "weights"
    assert models["critic"]["model"] == models["reward"]["model"] == "c/d"
    assert models["engine"]["sleep"] is True
    assert models["reference"] == {"model": "a/b", "strategy": "zero3", "loss": "openrlhf-0.11"}
    written = of_script(OPENRLHF, "run.sh", None)
    assert written is not None
    assert (written.gpus, written.global_batch, written.not_read) == (4, 128, ("unheard.of",))


def test_openrlhf_with_engines_of_their_own() -> None:
    text = OPENRLHF.replace("--train.colocate_all", "--train.colocate_actor_ref")
    found = job(text)
    assert list(found["models"]) == ["actor", "engine", "reference"]
    assert (found["models"]["engine"]["where"], found["models"]["engine"]["copies"]) == ("server", 2)
    written = of_script(text, "run.sh", None)
    assert written is not None
    assert written.gpus == 8
    assert any("left out" in note for note in written.notes)


def test_openrlhf_supervised() -> None:
    """openrlhf/trainer/sft_trainer.py: the actor's own log-probabilities; a batch is of samples, not of pairs."""
    text = """deepspeed --module openrlhf.cli.train_sft --model.model_name_or_path a/b --train.batch_size 256 \\
        --train.micro_batch_size 2 --ds.zero_stage 2 --model.gradient_checkpointing_enable --data.max_len 4096"""
    written = of_script(text, "run.sh", None)
    assert written is not None
    found = job(text)
    assert found["models"]["policy"]["loss"] == "openrlhf-0.11"
    assert found["phases"] == [{"name": "update", "does": "train", "models": ["policy"], "micro_batch": 2}]
    assert (found["prompt_len"], found["completion_len"], written.global_batch) == (2048, 2048, 256)


def test_openrlhf_dpo() -> None:
    found = job("openrlhf.cli.train_dpo --model.model_name_or_path a/b --train.micro_batch_size 1 --data.max_len 512")
    assert [phase["micro_batch"] for phase in found["phases"]] == [2, 2]
    assert found["models"]["policy"]["strategy"] == "zero2"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (VERL.replace("model_path=Qwen", "other=Qwen"), "$model_path, which the file does not set"),
        (VERL.replace("name=sglang", "name=trtllm"), "a document has vllm and sglang"),
        (
            VERL.replace("main_ppo", "main_ppo --config-name=ppo_megatron_trainer")
            .replace("rollout.n=5", "model.lora.rank=8")
            .replace("actor.ppo_micro_batch_size_per_gpu=16", "actor.megatron.tensor_model_parallel_size=4"),
            "plan MODEL --gpus SPEC --strategy megatron --tp 4 --attention flash --checkpointing none --set"
            " megatron.cross_entropy=verl"
            " --set megatron.overlap=false --set megatron.mtp_layers=0 --set megatron.gradient_fusion=false"
            " --set megatron.deallocate_outputs=false"
            " --set megatron.activation_fusion=false",
        ),
        (
            VERL.replace("main_ppo", "main_ppo --config-name=ppo_megatron_trainer")
            .replace("rollout.n=5", "model.lora.rank=8")
            .replace(
                "actor.ppo_micro_batch_size_per_gpu=16",
                " ".join(
                    f"actor_rollout_ref.actor.megatron.{word}"
                    for word in (
                        "expert_model_parallel_size=8",
                        "pipeline_model_parallel_size=2",
                        "override_transformer_config.recompute_granularity=full",
                        "override_transformer_config.recompute_num_layers=2",
                        "override_transformer_config.num_layers_in_first_pipeline_stage=4",
                        "override_transformer_config.gradient_accumulation_fusion=True",
                    )
                ).removeprefix("actor_rollout_ref."),
            ),
            "--pp 2 --ep 8 --vpp 1 --attention flash --checkpointing full --set megatron.cross_entropy=verl"
            " --set megatron.overlap=false --set megatron.mtp_layers=0 --set"
            " megatron.gradient_fusion=true --set megatron.deallocate_outputs=false --set megatron.recompute_layers=2"
            " --set megatron.first_layers=4",
        ),
        (VERL.replace("optimizer_offload=True", "optimizer_offload=False"), "a document does not say"),
        (VERL.replace("ppo_micro_batch_size_per_gpu=16", ""), "ppo_micro_batch_size_per_gpu is missing"),
        (VERL.replace("_per_gpu=16", "=1"), "it must give each one"),
        (
            VERL.replace(
                "rollout.n=5",
                "model.use_fused_kernels=True actor_rollout_ref.model.fused_kernel_options.impl_backend=triton",
            ),
            "torch's own chunks",
        ),
        (VERL.replace("length=1024", "length=many"), "a number is needed there"),
        (VERL.replace("rollout.n=5", "rollout.n=1.5"), "a whole number is needed there"),
        (VERL.replace("rollout.n=5", "actor.strategy=megatron"), "actor.strategy is megatron"),
        (VERL.replace("rollout.n=5", "model.use_liger=True"), "use_liger is not said"),
        (VERL.replace("trainer.n_gpus", "reward_model.enable=True trainer.n_gpus"), "a second one"),
        (VERL.replace("trainer.n_gpus", "agent_grpo.n=16 trainer.n_gpus"), "no word of verl's"),
        (OPENRLHF.replace("--ds.zero_stage 3", "--ds.ring_attn_size 2"), "ring attention"),
        (OPENRLHF.replace("--ds.zero_stage 3", "--train.async_enable"), "a rollout beside the update"),
        (OPENRLHF.replace("--ds.zero_stage 3", "--ds.load_in_4bit"), "load_in_4bit is not said"),
        (OPENRLHF.replace("--actor.model_name_or_path a/b", ""), "--actor.model_name_or_path is missing"),
    ],
)
def test_what_a_document_cannot_say_is_one_line(text: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        of_script(text, "run.sh", None)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_yaml_of_verl_names_its_model_on_the_command_line() -> None:
    table = {
        "defaults": ["ppo_trainer", "_self_"],
        "algorithm": {"adv_estimator": "grpo"},
        "actor_rollout_ref": {
            "actor": {"use_dynamic_bsz": True},
            "rollout": {"name": "vllm"},
        },
    }
    written = of_table(table, "job.yaml", "a/b")
    assert written is not None
    assert written.models["actor"]["model"] == "a/b"
    assert (written.phases[-1]["max_tokens"], written.phases[-1]["samples"]) == (16384, 32)
    assert written.padding_removed
    assert "padding_removed = true" in written.toml(None)
    with pytest.raises(InputError, match="names no model"):
        of_table(table, "job.yaml", None)
    assert of_table({"model": "a/b"}, "job.yaml", None) is None


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, out = tmp_path / "run.sh", tmp_path / "job.toml"
    script.write_text(VERL)
    assert main(["from-config", str(script), "--gpus", "H100", "-o", str(out)]) == 0
    assert f"plan {out} --gpus 2xH100 --global-batch 1280" in capsys.readouterr().err
    read_job(tomllib.loads(out.read_text()), "here")
    assert main(["from-config", str(script), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"]["models"]["actor"]["train"] is True
    assert main(["from-config", str(script), "--plan", "--gpus", "8xA100"]) == 2
    err = capsys.readouterr().err
    assert "write it with -o JOB.toml, then plan JOB.toml --gpus 2xA100" in err
    script.write_text("python -m verl.experimental.fully.main x=1\n")
    assert main(["from-config", str(script)]) == 2
    assert "is a command line of verl" in capsys.readouterr().err
