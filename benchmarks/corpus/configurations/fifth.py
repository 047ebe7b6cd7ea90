"""A fifth draw of configurations, by the rule of `listing` and a fresh seed, from repositories that no draw looked at.

    .venv/bin/python -m benchmarks.corpus.configurations.fifth FOLDER

FOLDER holds one checkout for each of REPOSITORIES. DRAW says how many are taken.
Writes fifth_drawn.json: repository, commit, path. What each must give stands in fifth.json,
written from the files' text before the first run.
"""

import sys

from benchmarks.corpus.configurations.draw import Draw

REPOSITORIES = (
    "Andrei-Aksionov/nanoGPTplus", "BTGenTP/FineTuningOnTelecomCluster", "CalculatedContent/nanogpt-experiments",
    "ContextualAI/gritlm", "Eric-is-good/pretrain-LLM-from-scratch", "KempnerInstitute/KempnerForge",
    "Liquid4All/leap-finetune", "Mekadrom/megatransformer", "PAIR-code/tiny-transformers", "PRIME-RL/PRIME",
    "Perlou/deep-learning-course", "QwenLM/Qwen-VL", "ShaneLiu04/nanoGPT-Modern", "TingsongYu/PyTorch-Tutorial-2nd",
    "VIA-Research/vTrain", "aaaprprpr/llm-from-scratch-main", "bigscience-workshop/Megatron-DeepSpeed",
    "chrishayuk/chuk-finetune", "corlin/finetuning-with-llama-factory", "darianrosebrook/distill",
    "davemeeta/moe-transformer-from-scratch", "deepseek-ai/DeepSeek-MoE", "deepseek-ai/ESFT",
    "digotetso/train-llm-from-scratch", "eliottzhang3-create/GZbridge-huginn-full-finetune", "gpu-mode/lectures",
    "graphdeeplearning/benchmarking-gnns", "henok3878/transformer-from-scratch", "joeynmt/joeynmt",
    "jzhang38/EasyContext", "karthyick/llm_tinystories", "klei22/nanoGPT", "m-ahmed-elbeskeri/puffin-finetune-studio",
    "microsoft/nni", "noamdwc/grpo_chess", "rajuX75/train-llm", "sarelWeinberger/qwen-hebrew-finetuning",
    "tgritsaev/tinystories", "valonys/finetuningtraining", "ymcui/Chinese-LLaMA-Alpaca",
)  # fmt: skip
DRAW = Draw(name="fifth", seed=59, few=2, drawn=70, repositories=REPOSITORIES)


if __name__ == "__main__":
    sys.exit(DRAW.main())
