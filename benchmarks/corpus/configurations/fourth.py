"""A fourth draw of configurations, by the rule of `listing` and a fresh seed, from repositories that no draw looked at.

    .venv/bin/python -m benchmarks.corpus.configurations.fourth FOLDER

FOLDER holds one checkout for each of REPOSITORIES. Of each repository's shuffled files the first FEW are taken, and of
these, shuffled once more, the first DRAWN; nothing is replaced. Writes fourth_drawn.json: repository, commit, path.
What each must give stands in fourth.json, written from the files' text before the first run.
"""

import json
import random
import sys
from pathlib import Path

from benchmarks.corpus.configurations.listing import listed

OUT = Path(__file__).parent / "fourth_drawn.json"
SEED, FEW, DRAWN = 37, 2, 80
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


def main(words: list[str]) -> int:
    """Lists and draws; 1 where a repository is missing."""
    folder = Path(words[0])
    missing = [name for name in REPOSITORIES if not (folder / name).is_dir()]
    if missing:
        print(f"missing below {folder}: {', '.join(missing)}")
        return 1
    listing = {name: paths for name, paths in listed(folder).items() if name in REPOSITORIES}
    chance = random.Random(SEED)
    taken = [(name, path) for name, paths in sorted(listing.items()) for path in chance.sample(paths, len(paths))[:FEW]]
    drawn = [{"repository": name, "path": path} for name, path in sorted(chance.sample(taken, len(taken))[:DRAWN])]
    commits = {name: (folder / f"{name}.commit").read_text().strip() for name in listing}
    counts = {name: len(paths) for name, paths in listing.items()}
    document = {"seed": SEED, "commits": commits, "listed": counts, "drawn": drawn}
    OUT.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{sum(counts.values())} listed in {len(listing)} repositories, {len(drawn)} drawn")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
