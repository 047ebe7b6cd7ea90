"""What each drawn configuration must give, by a reader that shares nothing with `plan`.

    .venv/bin/python -m benchmarks.corpus.configurations.expected FOLDER [held|third|fourth]

Writes expected.json, held.json of the second draw, third.json of the third, fourth.json of the fourth.

Each family is known by its repository and path, which `plan` never sees, and its keys are read by the few lines of
`families`. What must be refused is listed in `REFUSED` with the reason. An expectation is

- `read`: options of `plan` that must come out (null: that must not be there), `said`: words of which one line of what
  is planned otherwise, or of the notes, must have each;
- `refused`: no options at all, one line, exit code 2 or 3.
"""

import json
import sys
from fnmatch import fnmatch
from pathlib import Path

from benchmarks.corpus.configurations import preferences
from benchmarks.corpus.configurations.families import READERS
from benchmarks.corpus.configurations.families.reading import Read, content

HERE = Path(__file__).parent

REFUSED = {
    "it names no micro batch, which verl itself refuses (utils/config.py: validate_config)": (
        "*/verl/trainer/config/*",
    ),
    "a loop of its own, and its two files name different micro batches, which the Trainer refuses": ("LOMO/*",),
    "a job of Azure's, AutoML's or a sweep's, no training configuration of its own": (
        "azureml-examples/*", "distil-whisper/training/flax/*", "AgentTuning/AgentBench.old/*",
        "optimum-habana/tests/configs/examples/*", "FOB/*", "atropos/*",
    ),
    "several models": (
        "RL/examples/configs/*", "torchforge/tests/*", "GRPO-Zero/*",
        "open-instruct/*dpo*", "torchtune/*dpo*", "*ms-swift/examples/ray/*", "*ebft*", "verl/*", "EasyR1/*",
        "prime-rl/*", "trlx/*config*.yml", "SkyThought/*ppo*", "*_KD_*", "*ppo_config.yaml",
        "LMFlow/configs/iterative*",
    ),
    "nothing in it says which of TRL's trainers runs": ("*-simpo*.yaml",),
    "it names a file that is not there": (
        "MiniCPM/*minicpm_kto*", "MiniCPM/*minicpm_dpo*", "Open-Assistant/*accelerate_config.yaml",
    ),
    "no training": ("*evaluation.yaml", "*_predict.yaml", "*eval.yaml", "*t4_smoke*", "trl/tests/invariant/*"),
    "a tool that is not planned": (
        "gpt-neox/*", "llm-foundry/*", "smollm/text/*", "smollm/vision/experiments/pretraining/*/config.yaml",
        "trlx/configs/nemo*",
        "HALOs/config/*", "direct-preference*", "mistral-finetune/*", "ChatGLM3/*/lora.yaml", "ChatGLM3/*/ptuning*",
        "ChatGLM3/*/sft.yaml",
        "Open-Assistant/*config_rm.yaml", "Open-Assistant/*/configs/config.yaml", "peft/method_comparison/*",
        "SkyThought/*sft_trainer.yaml",
        "DeepSpeedExamples/training/bing_bert/bert_*", "*/megatron/*",
        "safari/*", "Fast-LLM/*", "DistillKit/*", "h2o-llmstudio/*", "ColossalAI-Examples/*", "autotrain-advanced/*",
        "GPT2/*.json", "pytorch-examples/configs/*", "Automodel/examples/*", "InternVideo/*", "OLMo/*",
        "templates/archive/*", "lightning-hydra-template/*", "templateGPT/*", "DDPM-Pytorch/*",
        "LLM-Finetuning-Toolkit/*", "ALBERT-Pytorch/*", "pipedream/*", "oumi/*", "LLM-Shearing/*", "s4/*",
        "nanotron/*", "*/opendelta/*",
        "llm_distillation_playbook/*", "fms-hf-tuning/examples/*", "fms-hf-tuning/tests/*",
    ),
    "no language model": ("torchtitan/*/flux/*",),
    "which of TRL's jobs is not said": ("trl/examples/cli_configs/*",),
    "not supervised steps of one loss": ("*early_exit*",),
    "expert parallelism": ("*fsdpturbo_ep*", "axolotl/examples/expert_parallel/*"),
    "no JSON: a template with a blank": ("*_TEMPLATE.json",),
    "a base of int8 that cannot be sharded here": ("axolotl/examples/glm47-flash/lora_fsdp.yaml",),
    "incomplete": ("*fsdp2_tp_preparation*",),
}  # fmt: skip
"""Patterns of NAME/PATH by the reason."""

PREFERENCES = "was to be refused until preference and reinforcement learning were planned: read since, by TRL's source"
"""Why the expectation of such a file is another one than at first: it was written after `plan` read them."""

CORRECTED: dict[str, tuple[str, dict[str, object]]] = {
    "trlx/examples/summarize_rlhf/configs/default_accelerate_config.yaml": (
        "DeepSpeed 0.19 hands offload_param to stage 3 alone (runtime/engine.py), and this is stage 2",
        {"offload": "optimizer"},
    ),
    "trlx/examples/summarize_rlhf/reward_model/ds_config_gpt_j.json": ("as above", {"offload": "optimizer"}),
    "diffusers/examples/research_projects/flux_lora_quantization/ds2.yaml": ("as above", {"offload": "optimizer"}),
    "trl/trl/accelerate_configs/single_gpu.yaml": (
        "Accelerate launches one process for distributed_type NO (commands/launch.py), whatever num_processes says",
        {"processes": 1, "strategy": "single"},
    ),
    "llama-cookbook/getting-started/responsible_ai/llama_guard/torchtune_configs/8B_guard_full.yaml": (
        "the comment's download is of another file; checkpoint_dir is Llama Guard's",
        {"model": "meta-llama/Meta-Llama-Guard-3-8B"},
    ),
    "torchtitan/torchtitan/models/deepseek_v3/train_configs/deepseek_v3_671b.toml": (
        "its assets are DeepSeek's, whose name the expectation did not know",
        {"model": "deepseek-ai/DeepSeek-V3.1-Base"},
    ),
    "litgpt/config_hub/pretrain/microllama.yaml": (
        "on eight devices 48 // 8 // 12 is 0, which litgpt refuses (args.py: gradient_accumulation_iters)",
        {"refused": "the batch does not add up on eight GPUs"},
    ),
    "Firefly/train_args/sft/full/bloom-3b-sft-full.json": (
        "an optimizer of DeepSpeed's own file takes optim's place (transformers integrations/deepspeed.py)",
        {"optimizer": "adamw-fused"},
    ),
}
"""Expectations that were mistaken, found when the first run after the mending disagreed with them, by NAME/PATH: what
the tool's own source says, and what takes their place. No file was taken out."""

FAMILIES = {
    "axolotl": (
        "Online-RLHF/sft/*", "axolotl/examples/*", "llm-finetuning/config/*", "RLHF-Reward-Modeling/*-pm/*",
        "RLHF-Reward-Modeling/math-rm/*",
    ),
    "llamafactory_v1": ("LLaMA-Factory/examples/v1/*",),
    "swift": ("ms-swift/examples/yaml/*", "ms-swift/*/sft.yaml"),
    "deepspeed": (
        "FinGPT/*config.json", "*/scripts/zero.json", "*zero_2_bf16.json", "gpt4all/*", "*zero_stage?_config.json",
        "KnowLM/pretrain/configs/*", "optimum-habana/tests/configs/deepspeed*", "yarn/deepspeed/*",
        "*/deepspeed_configs/*", "*ds_z*.json", "*ds_*config*", "*deepspeed*.json", "*/zero*.json", "*ds_configs/*",
        "dolly/*", "DeepSpeedExamples/*", "*/ds_zero_*.json", "*/dsconfigs/*", "*ds-config.json", "*ds_falcon*",
        "*ds_flan*", "*stage?.json",
        "LMFlow/configs/deepspeed/*", "*/zero_stage*.json", "*/zero_configs/*", "*/deepspeed/stage*.json",
    ),
    "fragment": ("*ms-swift/*fsdp*.json",),
    "accelerate": (
        "R1-V/src/r1-v/configs/*", "MOSS/configs/sft.yaml", "Alpaca-CoT/*accelerate_*", "verifiers/configs/zero?.yaml",
        "*accelerate_config*", "accelerate/*", "*/fsdp_config*.yaml", "*/configs/accelerate/*", "*multigpu_config*",
        "*/ktransformers/accelerate/*", "LLaMA-Factory/examples/accelerate/*", "*/deepspeed_*config*.yaml",
        "*configs/deepspeed_config.yaml", "diffusers/*", "LMFlow/configs/*accelerate_*", "DeepSeek-Coder/*",
        "*/data/config/fsdp.yaml", "HuatuoGPT-o1/*", "notus/*/configs/accelerate/*", "*/grpo/deepspeed_zero?.yaml",
        "fms-hf-tuning/fixtures/*", "trl/*accelerate_configs/*", "ms-swift/*/accelerate/*", "*summarize_rlhf/configs/*",
    ),
    "of_stages": ("templates/templates/*kto_*",
        "LLaMA-Factory/*_dpo.yaml", "LLaMA-Factory/*_kto.yaml", "LLaMA-Factory/*_reward.yaml",
    ),
    "of_completions": ("open-rs/recipes/grpo.yaml", "open-r1/*/grpo/*", "deep-learning*/grpo-*"),
    "of_pairs": (
        "notus/*/configs/dpo/*", "alignment-handbook/*/dpo/*", "alignment-handbook/*/orpo/*",
        "alignment-handbook/*config_dpo*", "deep-learning*/dpo-*",
    ),
    "llamafactory": ("LIMO/train/examples/*", "LLaMA-Factory/examples/*", "MiniCPM/*llama_factory*", "open-thoughts/*"),
    "open_instruct": ("open-instruct/*",),
    "torchtune": ("torchtune/*", "*torchtune_configs*"),
    "torchtitan": ("torchtitan/*",),
    "litgpt": ("litgpt/*",),
    "swift_other": ("ms-swift/*",),
    "unsloth": ("unsloth/studio/*",),
    "firefly": ("Firefly/train_args/*",),
    "trl": (
        "VLM-R1/*_sft_config.yaml",
        "notus/*/configs/sft/*", "alignment-handbook/*", "open-r1/*", "deep-learning*", "SimPO/*",
    ),
    "seq2seq": ("parler-tts/helpers/training_configs/*",),
    "trainer": ("starcoder/chat/config.yaml",),
}  # fmt: skip
"""Patterns of NAME/PATH by the family; the first that fits counts."""


def matching(name: str, table: dict[str, tuple[str, ...]]) -> str | None:
    """The first entry with a pattern that fits."""
    return next((entry for entry, patterns in table.items() if any(fnmatch(name, one) for one in patterns)), None)


def expectation(folder: Path, repository: str, path: str) -> dict[str, object]:
    """Of one drawn file."""
    name = f"{repository.partition('/')[2]}/{path}"
    because = matching(name, REFUSED)
    if because is not None:
        return {"ends": "refused", "because": because}
    family = matching(name, FAMILIES)
    if family is None:
        raise SystemExit(f"{name}: no family")
    root = folder / repository
    reader = getattr(preferences, family) if family.startswith("of_") else READERS[family]
    read: Read = reader(content(root / path), root, path)
    reason, right = CORRECTED.get(name, ("", {}))
    right = dict(right)
    read.refused = str(right.pop("refused", read.refused))
    read.options |= right
    if reason and "model" in right:
        read.said = []
    if read.refused:
        return {"ends": "refused", "because": read.refused} | ({"corrected": reason} if reason else {})
    if not reason and family.startswith("of_"):
        reason = PREFERENCES
    found = {"ends": "read", "kind": read.kind or family, "options": read.options, "said": read.said}
    return {**found, "corrected": reason} if reason else found


_DRAWS = {
    "first": ("drawn.json", "drawn", "expected.json"),
    "held": ("drawn.json", "held", "held.json"),
    "third": ("third_drawn.json", "drawn", "third.json"),
    "fourth": ("fourth_drawn.json", "drawn", "fourth.json"),
}
"""Of each draw where it is listed, under which name, and where its expectations go."""


def main(words: list[str]) -> int:
    """Writes the expectations of a draw; says which files are missing."""
    folder, draw = Path(words[0]), (words[1:] or ["first"])[0]
    source, name, out = _DRAWS[draw]
    drawn = json.loads((HERE / source).read_text())[name]
    missing = [one for one in drawn if not (folder / one["repository"] / one["path"]).is_file()]
    for one in missing:
        print(f"missing: {one['repository']}/{one['path']}")
    found = [{**one, **expectation(folder, one["repository"], one["path"])} for one in drawn if one not in missing]
    for one in found:  # written when preference jobs were planned already
        if draw in ("third", "fourth") and one.get("corrected") == PREFERENCES:
            del one["corrected"]
    (HERE / out).write_text(json.dumps(found, indent=1) + "\n")
    print(f"{len(found)} expectations, {sum(one['ends'] == 'read' for one in found)} to be read")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
