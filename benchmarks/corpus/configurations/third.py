"""A third draw of configurations, by the rule of `listing` and a fresh seed, from repositories that no draw looked at.

    .venv/bin/python -m benchmarks.corpus.configurations.third FOLDER

FOLDER holds one checkout for each of REPOSITORIES. The draw takes the first FEW of each repository's shuffled files;
nothing is replaced. Writes third_drawn.json: repository, commit, path. What each must give stands in third.json,
written from the files' text before the first run.
"""

import json
import random
import sys
from pathlib import Path

from benchmarks.corpus.configurations.listing import listed

OUT = Path(__file__).parent / "third_drawn.json"
SEED, FEW = 31, 4
REPOSITORIES = (
    "FlagOpen/FlagEmbedding", "FreedomIntelligence/HuatuoGPT-o1", "GAIR-NLP/LIMO", "HazyResearch/safari",
    "InternLM/xtuner", "OpenGVLab/InternVL", "OpenRLHF/OpenRLHF", "ServiceNow/Fast-LLM", "arcee-ai/DistillKit",
    "argilla-io/notus", "aws-samples/awsome-distributed-training", "deepspeedai/DeepSpeed",
    "foundation-model-stack/fms-hf-tuning", "h2oai/h2o-llmstudio", "hpcaitech/ColossalAI-Examples",
    "huggingface/autotrain-advanced", "huggingface/smol-course", "modal-labs/llm-finetuning", "nlpxucan/WizardLM",
    "predibase/llm_distillation_playbook", "shibing624/MedicalGPT", "simplescaling/s1", "yangjianxin1/Firefly",
    "ymcui/Chinese-LLaMA-Alpaca-3",
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
    drawn = [
        {"repository": name, "path": path}
        for name, paths in sorted(listing.items())
        for path in sorted(chance.sample(paths, len(paths))[:FEW])
    ]
    commits = {name: (folder / f"{name}.commit").read_text().strip() for name in listing}
    counts = {name: len(paths) for name, paths in listing.items()}
    document = {"seed": SEED, "commits": commits, "listed": counts, "drawn": drawn}
    OUT.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{sum(counts.values())} listed in {len(listing)} repositories, {len(drawn)} drawn")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
