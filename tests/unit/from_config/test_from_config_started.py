"""Shell scripts that start training scripts: their options, how they are launched, what is not guessed."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from gpu_plan.planner.errors import InputError, PlanError, UnreachableError, UsageError
from gpu_plan.planner.from_config.convert import Converted, convert
from gpu_plan.planner.from_config.documents.find import of_script
from gpu_plan.planner.from_config.shell.launched import launched_of

ZERO = {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 3}, "num_processes": 4}
FILES: Mapping[str, Mapping[str, object]] = {
    "zero3.yaml": {**ZERO, "mixed_precision": "bf16"},
    "job.yaml": {"per_device_train_batch_size": 2, "beta": 0.1, "model_name_or_path": "a/b"},
    "config/mine.yaml": {
        "actor_rollout_ref": {
            "actor": {"ppo_micro_batch_size_per_gpu": 4, "strategy": "fsdp"},
            "rollout": {"name": "vllm", "n": 6, "log_prob_micro_batch_size_per_gpu": "${actor_rollout_ref.rollout.n}"},
            "ref": {"log_prob_micro_batch_size_per_gpu": 2},
        },
        "algorithm": {"adv_estimator": "grpo"},
    },
    "examples/config.yaml": {
        "data": {"max_prompt_length": 256, "max_response_length": 256},
        "worker": {
            "actor": {"micro_batch_size_per_device_for_update": 2, "offload": {"offload_params": False}},
            "ref": {"fsdp": {"enable_cpu_offload": True}},
        },
    },
}
FLAGS = "--model_name_or_path a/b --per_device_train_batch_size 3 --output_dir $OUT"


def fetch(name: str, _: str) -> Mapping[str, object]:
    if name in FILES:
        return FILES[name]
    raise UnreachableError(name)


def read(text: str, model: str | None = None) -> Converted:
    launched = launched_of(text, "run.sh", fetch, model)
    assert launched is not None
    return convert(launched.content, "run.sh", fetch, kind="trainer", launched=launched)


STARTED = {
    f"torchrun --nproc_per_node=2 src/train_dpo.py {FLAGS} --gradient_accumulation_steps 8": {
        "recipe": "dpo", "micro-batch": "3", "grad-accum": "8", "strategy": "ddp",
    },
    f"N=4\naccelerate launch --config_file zero3.yaml --num_processes $N orpo.py {FLAGS} --bf16 True": {
        "recipe": "orpo", "strategy": "zero3", "precision": "bf16-mixed",
    },
    f"trl kto {FLAGS} --accelerate_config zero2 --use_peft --lora_r 8": {
        "recipe": "kto", "strategy": "zero2", "lora-rank": "8",
    },
    f"deepspeed --num_gpus 8 run_rm.py {FLAGS} --lora_target_modules q_proj v_proj --use_lora True --lora_r 4": {
        "recipe": "reward", "lora-targets": "q_proj,v_proj", "lora-rank": "4",
    },
    f"python3 dpo_training.py {FLAGS} --max_source_length 100 --max_target_length 50": {
        "recipe": "dpo", "seq-len": "150", "prompt-len": "100",
    },
    "accelerate launch --config_file zero3.yaml scripts/run_dpo.py job.yaml --gradient_accumulation_steps 2": {
        "recipe": "dpo", "micro-batch": "2", "grad-accum": "2", "strategy": "zero3",
    },
    f"accelerate launch --use_deepspeed --zero_stage 2 train.py {FLAGS} --num_generations 4": {
        "recipe": "grpo", "strategy": "zero2", "generations": "4",
    },
    f"python sft.py {FLAGS}": {"recipe": None, "micro-batch": "3"},
}  # fmt: skip


@pytest.mark.parametrize("text", STARTED)
def test_a_training_script_that_is_started_is_its_options(text: str) -> None:
    found = read(text)
    options = {said.option: said.value for said in found.options}
    assert {key: options.get(key) for key in STARTED[text]} == STARTED[text]
    assert any("captures what the script itself does" in line for line in found.approximated)


def test_how_many_processes_a_launcher_starts() -> None:
    for launcher, count in (
        ("torchrun --nproc-per-node 4 --nnodes 2", 8), ("deepspeed --include localhost:0,1,2", 3), ("python", None),
        ("accelerate launch --config_file zero3.yaml", 4),
    ):  # fmt: skip
        assert read(f"{launcher} dpo.py {FLAGS}").processes == count


def test_variables_of_a_script() -> None:
    text = f'B=5\nwhile [[ $# -ge 1 ]]; do\n  B="$2"\ndone\ntorchrun dpo.py {FLAGS} --gradient_accumulation_steps $B'
    assert ("grad-accum", "5") in [(said.option, said.value) for said in read(text).options]
    held = f"B=5\nif [ $X = 1 ]; then\n  B=6\nfi\ntorchrun dpo.py {FLAGS} --gradient_accumulation_steps $B"
    with pytest.raises(InputError, match=r"gradient_accumulation_steps is \$B, which the script does not set"):
        read(held)
    remark = f"python dpo.py `# memory` {FLAGS}"
    assert read(remark).model == "a/b"


REFUSED = {
    f"python train.py {FLAGS}": "do not say what it trains by",
    f"python dpo.py {FLAGS.replace('a/b', '<PATH>')}": "name the model behind it",
    f"python dpo.py {FLAGS} --use_lora 1": "adapters without lora_r",
    f"python dpo.py {FLAGS} --use_lisa 1": "own word for what is trained",
    f"python dpo.py {FLAGS} --freeze_vision_tower True": "own word for what is trained",
    f"python grpo.py {FLAGS} --use_vllm True": "use_vllm without vllm_mode",
    f"python dpo.py {FLAGS}\npython kto.py {FLAGS}": "starts 2 trainings whose options differ",
    f"python dpo.py {FLAGS} --max_length $L": "max_length is .L, which the script does not set",
    f"python train_ppo.py {FLAGS}": "TRL's PPO trainer of before 1.0",
}


@pytest.mark.parametrize("text", REFUSED)
def test_nothing_of_a_started_script_is_guessed(text: str) -> None:
    with pytest.raises((InputError, UsageError), match=REFUSED[text]):
        read(text)


@pytest.mark.parametrize(
    "text", ["python dpo.py --learning_rate 1", "trl dpo --config gone.yaml", f"python eval_dpo.py {FLAGS}", "ls a.py"]
)
def test_what_is_no_training_by_options_is_left(text: str) -> None:
    assert launched_of(text, "run.sh", fetch, None) is None


def test_placeholders_give_way_to_a_named_model() -> None:
    text = f"python dpo.py {FLAGS.replace('a/b', '<PATH-TO-MODEL>')}"
    assert read(text, "c/d").model is None


def test_a_fork_of_verl_with_its_own_file() -> None:
    text = "python -m mine.main --config-path=./config --config-name=mine actor_rollout_ref.model.path=a/b"
    written = of_script(text, "run.sh", None, fetch)
    assert written is not None
    assert "mine.main starts it" in written.notes[0]
    cuts = {str(one["name"]): one.get("micro_batch") for one in written.phases}
    assert (cuts["old log-probabilities"], cuts["update"]) == (6, 4)
    with pytest.raises(InputError, match="a file that is not beside it says the rest"):
        of_script(text.replace("=mine", "=other"), "run.sh", None, fetch)
    with pytest.raises(InputError, match="starts 2 jobs whose options differ"):
        of_script(f"{text}\n{text} trainer.nnodes=2", "run.sh", None, fetch)


EASY = "python3 -m verl.trainer.main config=examples/config.yaml worker.actor.model.model_path=a/b {} trainer.nnodes=2"


def test_what_older_files_of_verl_ask() -> None:
    text = "python -m verl.trainer.main_ppo actor_rollout_ref.model.path=a/b actor_rollout_ref.rollout.name=vllm {}"
    said = "actor_rollout_ref.actor.ppo_micro_batch_size=16 actor_rollout_ref.rollout.log_prob_micro_batch_size=16"
    said += " actor_rollout_ref.ref.log_prob_micro_batch_size=16 critic.ppo_micro_batch_size=16"
    for more, refers in (
        ("", True),
        ("algorithm.use_kl_in_reward=False", False),
        ("algorithm.kl_ctrl.kl_coef=0", False),
    ):
        written = of_script(text.format(f"{said} {more}"), "run.sh", None)
        assert written is not None
        assert ("reference" in written.models) == refers, more
    with pytest.raises(InputError, match="a fork's own reward model"):
        of_script(text.format(f"{said} reward_model.rm_type=prime"), "run.sh", None)


def test_an_engine_on_a_device_of_its_own() -> None:
    found = read(f"python grpo.py {FLAGS} --use_vllm True --vllm_device auto")
    assert ("vllm", "server") in [(said.option, said.value) for said in found.options]


def test_easy_r1() -> None:
    written = of_script(EASY.format("worker.rollout.n=5"), "run.sh", None, fetch)
    assert written is not None
    assert (written.gpus, written.prompt_len, written.expandable_segments) == (16, 256, False)
    assert written.models["reference"]["offload"] == "all"
    update = next(one for one in written.phases if one["does"] == "train")
    assert (update["max_tokens"], update["samples"]) == (2 * 512, 256 * 5 // 16)
    for said, match in (
        ("worker.actor.optim.strategy=adamw_bf16", "worker.actor.optim.strategy is adamw_bf16"),
        ("worker.actor.ulysses_size=x", "worker.actor.ulysses_size is x: a number"),
        ("worker.actor.fsdp.enable_full_shard=false", "enable_full_shard is False"),
        ("worker.actor.offload.offload_params=true", "param_offload without optimizer_offload"),
    ):
        with pytest.raises(InputError, match=match):
            of_script(EASY.format(said), "run.sh", None, fetch)
    with pytest.raises(PlanError):
        of_script(EASY.format("").replace("examples/", "gone/"), "run.sh", None, fetch)


OLDER = """python -m openrlhf.cli.train_ppo_ray --pretrain a/b --reward_pretrain c/d --actor_num_gpus_per_node 4 \\
  --vllm_num_engines 2 --vllm_tensor_parallel_size 2 --colocate_all_models --micro_train_batch_size 2 --zero_stage 3 \\
  --prompt_max_len 300 --generate_max_len 700 --gradient_checkpointing --adam_offload {} $X
"""


def test_older_words_of_openrlhf() -> None:
    written = of_script(OLDER.format("--bf16 --flash_attn --ref_reward_offload"), "run.sh", None)
    assert written is not None
    assert (written.prompt_len, written.completion_len, written.gpus) == (300, 700, 4)
    assert list(written.models) == ["actor", "engine", "reference", "reward", "critic"]
    actor = written.models["actor"]
    assert (actor["strategy"], actor["offload"], actor["attention"]) == ("zero3", "optimizer", "flash")
    assert written.models["reward"]["offload"] == "all"
    eager = of_script(OLDER.format("--bf16"), "run.sh", None)
    assert eager is not None
    assert eager.models["actor"]["attention"] == "eager"
    for said, match in (
        ("", "neither --bf16 nor --param_dtype"), ("--bf16 --ring_attn_size 2", "ring_attn_size is 2"),
        ("--bf16 --load_in_4bit", "load_in_4bit is not said"), ("--bf16 --train_batch_size x", "train_batch_size is x"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=match):
            of_script(OLDER.format(said), "run.sh", None)


def test_reward_models_and_single_launches_of_openrlhf() -> None:
    rewards = of_script(
        "deepspeed --module openrlhf.cli.train_rm --pretrain a/b --bf16 --max_len 100 --micro_train_batch_size 3",
        "run.sh",
        None,
    )
    assert rewards is not None
    assert (rewards.models["reward"]["head"], rewards.phases[0]["micro_batch"]) == ("reward", 6)
    alone = of_script(
        "deepspeed --module openrlhf.cli.train_ppo --pretrain a/b --reward_pretrain c/d --bf16", "run.sh", None
    )
    assert alone is not None
    assert (alone.gpus, list(alone.models)) == (None, ["actor", "reference", "reward", "critic"])


def test_a_document_of_a_folder(tmp_path: Path) -> None:
    from gpu_plan.cli import main

    (tmp_path / "run.sh").write_text(f"torchrun --nproc_per_node 2 dpo.py {FLAGS}\n")
    assert main(["from-config", str(tmp_path / "run.sh"), "--gpus", "2xH100", "--json"]) == 0
