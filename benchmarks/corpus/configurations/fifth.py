"""A fifth draw of configurations, by the rule of `listing` and a fresh seed, from repositories that no draw looked at.

    .venv/bin/python -m benchmarks.corpus.configurations.fifth FOLDER

FOLDER holds one checkout for each of REPOSITORIES. Of each repository's shuffled files the first FEW are taken, and of
these, shuffled once more, the first DRAWN; nothing is replaced. Writes fifth_drawn.json: repository, commit, path.
What each must give stands in fifth.json, written from the files' text before the first run.
"""

import json
import random
import sys
from pathlib import Path

from benchmarks.corpus.configurations.listing import listed

OUT = Path(__file__).parent / "fifth_drawn.json"
SEED, FEW, DRAWN = 59, 2, 70
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
