"""Lists the training scripts of checked-out public repositories by a rule, and draws from them by a seed.

    .venv/bin/python -m benchmarks.corpus.listing FOLDER

FOLDER holds one checkout for each repository of REPOSITORIES as OWNER/NAME, its commit in a file OWNER/NAME.commit.
A file is a training script by what its text says, never by whether it can be captured:

- it ends in `.py`, is no test, set-up or package file, and no folder above it is named for tests;
- it imports torch, transformers, trl, lightning or accelerate;
- it is a program: it has a `__main__` guard, or a loop at module level;
- it trains: it calls `backward`, or a trainer's `train` or `fit`.

The draw shuffles each repository's scripts by the seed and takes one of each in turn, at most MOST of one repository,
until DRAWN are drawn. Writes benchmarks/corpus/scripts.json: repository, commit, path.
"""

import ast
import json
import random
import re
import sys
import warnings
from pathlib import Path

OUT = Path(__file__).parent / "scripts.json"
SEED, DRAWN, MOST = 20261122, 104, 9
REPOSITORIES = (
    "Lightning-AI/litgpt", "Lightning-AI/pytorch-lightning", "KellerJordan/modded-nanogpt", "OptimalScale/LMFlow",
    "QwenLM/Qwen", "UKPLab/sentence-transformers", "allenai/open-instruct", "artidoro/qlora",
    "bigcode-project/octopack",
    "bigcode-project/starcoder", "databrickslabs/dolly", "eric-mitchell/direct-preference-optimization",
    "facebookresearch/DiT", "facebookresearch/dino", "facebookresearch/mae", "hkproj/pytorch-transformer",
    "huggingface/accelerate", "huggingface/alignment-handbook", "huggingface/diffusers", "huggingface/peft",
    "huggingface/smollm", "huggingface/trl", "jzhang38/TinyLlama", "karpathy/build-nanogpt", "karpathy/llama2.c",
    "karpathy/makemore", "karpathy/minGPT", "karpathy/nanoGPT", "karpathy/nanochat", "lm-sys/FastChat",
    "lucidrains/x-transformers", "meta-llama/llama-cookbook", "microsoft/DeepSpeedExamples", "mlfoundations/open_clip",
    "pacman100/LLM-Workshop", "philschmid/deep-learning-pytorch-huggingface", "pytorch/examples", "pytorch/ignite",
    "rasbt/LLMs-from-scratch", "tatsu-lab/stanford_alpaca", "tloen/alpaca-lora",
)  # fmt: skip
_NO_SCRIPT = re.compile(
    r"(^|/)(tests?|testing|unit_tests?|\.[^/]*)/|(^|/)(__init__|setup|conftest|test_[^/]*|[^/]*_test)\.py$"
)
_IMPORTS = re.compile(r"^\s*(import|from)\s+(torch|transformers|trl|lightning|pytorch_lightning|accelerate)\b", re.M)
_TRAINS = re.compile(r"\.backward\(|trainer\w*(\(.*\))?\.(train|fit|learn)\(|\.fit\(", re.I)


def is_training_script(path: str, text: str) -> bool:
    """The rule above."""
    if not path.endswith(".py") or _NO_SCRIPT.search(path) or not _IMPORTS.search(text) or not _TRAINS.search(text):
        return False
    return "__main__" in text or _loops(text)


def _loops(text: str) -> bool:
    """Whether a loop stands at module level, plainly or below an `if` or `with`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            waiting: list[ast.stmt] = list(ast.parse(text).body)
    except (SyntaxError, ValueError):
        return False
    while waiting:
        statement = waiting.pop()
        if isinstance(statement, ast.For | ast.While):
            return True
        if isinstance(statement, ast.If | ast.With | ast.Try):
            waiting += statement.body
    return False


def listed(checkout: Path) -> list[str]:
    """Paths of a repository's training scripts, sorted."""
    found = []
    for path in sorted(checkout.rglob("*.py")):
        if path.is_file():
            name = str(path.relative_to(checkout))
            if is_training_script(name, path.read_text(encoding="utf-8", errors="replace")):
                found.append(name)
    return found


def drawn(listing: dict[str, list[str]]) -> list[dict[str, str]]:
    """What is drawn: one of each repository in turn."""
    chance = random.Random(SEED)
    order = {name: chance.sample(paths, len(paths)) for name, paths in sorted(listing.items())}
    found: list[dict[str, str]] = []
    for turn in range(MOST):
        for name, paths in order.items():
            if turn < len(paths) and len(found) < DRAWN:
                found.append({"repository": name, "path": paths[turn]})
    return sorted(found, key=lambda one: (one["repository"], one["path"]))


def main(words: list[str]) -> int:
    """Lists and draws; 1 where a repository is missing."""
    folder = Path(words[0])
    missing = [name for name in REPOSITORIES if not (folder / name).is_dir()]
    if missing:
        print(f"missing below {folder}: {', '.join(missing)}")
        return 1
    commits = {name: (folder / f"{name}.commit").read_text().strip() for name in REPOSITORIES}
    listing = {name: listed(folder / name) for name in REPOSITORIES}
    document = {"seed": SEED, "commits": commits, "listing": listing, "drawn": drawn(listing)}
    OUT.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{sum(map(len, listing.values()))} listed, {len(document['drawn'])} drawn")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
