"""A fourth draw of configurations, by the rule of `listing` and a fresh seed, from repositories that no draw looked at.

    .venv/bin/python -m benchmarks.corpus.configurations.fourth FOLDER

FOLDER holds one checkout for each of REPOSITORIES. DRAW says how many are taken.
Writes fourth_drawn.json: repository, commit, path. What each must give stands in fourth.json,
written from the files' text before the first run.
"""

import sys

from benchmarks.corpus.configurations.draw import Draw

REPOSITORIES = (
    "AI4Finance-Foundation/FinGPT", "Azure/azureml-examples", "ConnorJL/GPT2", "Deep-Agent/R1-V",
    "EvolvingLMMs-Lab/open-r1-multimodal", "FlagAI-Open/FlagAI", "InternLM/InternLM-XComposer",
    "MiniMax-AI/One-RL-to-See-Them-All", "NERSC/pytorch-examples", "NVIDIA-NeMo/Automodel", "NVIDIA-NeMo/RL",
    "NousResearch/atropos", "OpenGVLab/InternVideo", "OpenLMLab/LOMO", "OpenMOSS/MOSS", "OpenPipe/OpenPipe",
    "PKU-YuanGroup/Chat-UniVi", "PhoebusSi/Alpaca-CoT", "QwenLM/Qwen3-Coder", "RLHFlow/Minimal-RL",
    "RLHFlow/Online-RLHF", "RUCAIBox/LLMBox", "THUDM/AgentTuning", "THUDM/CogVLM2", "THUDM/GLM-4", "THUDM/LongAlign",
    "TIGER-AI-Lab/VLM2Vec", "TinyLLaVA/TinyLLaVA_Factory", "X-PLUG/mPLUG-Owl", "agentica-project/rllm",
    "allenai/OLMo", "anyscale/templates", "ashleve/lightning-hydra-template", "bespokelabsai/curator",
    "bofenghuang/vigogne", "dstackai/dstack", "evintunador/templateGPT", "explainingai-code/DDPM-Pytorch",
    "facebookresearch/coconut", "fla-org/flame", "georgian-io/LLM-Finetuning-Toolkit", "graykode/ALBERT-Pytorch",
    "hkust-nlp/simpleRL-reason", "huggingface/distil-whisper", "huggingface/optimum-habana", "huggingface/parler-tts",
    "imoneoi/openchat", "jquesnelle/yarn", "knoveleng/open-rs", "lucidrains/sinkhorn-transformer",
    "meta-pytorch/torchforge", "msr-fiddle/pipedream", "nomic-ai/gpt4all", "om-ai-lab/VLM-R1", "oumi-ai/oumi",
    "policy-gradient/GRPO-Zero", "princeton-nlp/LLM-Shearing", "salesforce/CodeT5", "sapientinc/HRM",
    "stanford-crfm/levanter", "state-spaces/s4", "swiss-ai/nanotron", "willccbb/verifiers", "zjunlp/KnowLM",
    "zyds/transformers-code",
)  # fmt: skip
DRAW = Draw(name="fourth", seed=37, few=2, drawn=80, repositories=REPOSITORIES)


if __name__ == "__main__":
    sys.exit(DRAW.main())
