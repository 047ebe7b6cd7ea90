"""A sixth draw of configurations, by the rule of `listing` and a fresh seed, from repositories that no draw looked at.

    .venv/bin/python -m benchmarks.corpus.configurations.sixth FOLDER

FOLDER holds one checkout for each of REPOSITORIES. DRAW says how many are taken.
Writes sixth_drawn.json: repository, commit, path. What each must give stands in sixth.json,
written from the files' text before the first run.
"""

import sys

from benchmarks.corpus.configurations.draw import Draw

REPOSITORIES = (
    "CMBAgents/open-r1-tpu", "DimensionSTP/llm-fine-tune-hf", "GHOST-Science-Club/llm-fine-tuning",
    "GeodesicResearch/geodesic-open-instruct", "IbrahimOued/torchtune-finetuning", "IlyaGusev/LitGPT",
    "InflectionAI/torchtune", "Kevin-Li-2025/l20-edu-135m-pretrain", "Kkuntal990/vlm-self-reflection-ms-swift",
    "LambdaLabsML/torchtitan", "LumiOpen/alignment-handbook", "McGill-NLP/nano-aha-moment",
    "Neelectric/open-r1_safety", "NousResearch/torchtitan", "SachinKonan/LLaMA-Factory-AutoReviewer",
    "SeanYHan888/dynamic-dpo-v4", "akshayg108/continued-pretraining", "alexkroman/tiny-audio",
    "celestial-micha/qwen-local-lora-sft-dpo", "chrisjcc/text-to-sql-refine-tuning", "corlin/finetune_memsafe",
    "dice-group/LLaMA-Factory-Merlin", "felixzli/synthetic_pretraining", "garrett361/torchtitan",
    "gouqi666/DPO-deepspeed", "hsushuai/ms-swift-scripts", "hyunwoongko/nanoRLHF",
    "jacky-mo-1111/AMAZON_LLAMA-FACTORY", "jiosephlee/fine-tuning-or-retrieval", "justinphan3110/deepspeed_lora",
    "kapilw25/finetuning_evaluation", "limccn/deepspeed-trick", "n-getty/torchtune-aurora",
    "nilsblank/LLaMA-Factory-RoboG-v2", "odissei-benchmarks/torchtune-gpu-benchmark",
    "raminsaeedi/FineTuningMaster", "sahandrez/unpaired_rlhf", "sheikhomar/axolotl",
    "shreyashreddyk/json-extraction-qlora-dpo", "thad0ctor/axolotl", "wsklee/alignment-handbook",
    "xiyang-aads-lilly/alignment-handbook", "yiqiao-yin/deepspeed-course", "zhikaili1150/open-r1",
)  # fmt: skip
DRAW = Draw(name="sixth", seed=67, few=2, drawn=66, repositories=REPOSITORIES)


if __name__ == "__main__":
    sys.exit(DRAW.main())
