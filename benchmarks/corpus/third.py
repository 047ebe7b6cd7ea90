"""A third draw of training scripts, by a fresh seed, from repositories that no earlier draw looked at.

    .venv/bin/python -m benchmarks.corpus.third FOLDER [--packages FOLDER]

FOLDER holds one checkout for each repository of REPOSITORIES (see `listing`), of which `listing` lists the training
scripts; those remain whose text lets them run on what is installed: each is `held.runnable`, as is every module of the
checkout that it imports, none of them builds a CUDA extension or uses a name that is long gone (GONE), and it steps an
optimizer or has a trainer train. The draw takes one of each repository in turn, at most MOST of one, until DRAWN are
drawn; nothing is replaced. Writes third_scripts.json.
"""

import argparse
import ast
import json
import random
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.corpus.held import imported, runnable
from benchmarks.corpus.listing import listed

OUT = Path(__file__).parent / "third_scripts.json"
SEED, DRAWN, MOST = 28, 44, 3
GONE = re.compile(
    r"cpp_extension|np\.fromstring|load_metric|\.(data|item)\[0\]|loss\.data\[0\]|total_loss\[0\]|is_torch_tpu_available"
    r"|verbose\s*=\s*True|from transformers import \*|\bimport gym\b"
)
STEPS = re.compile(r"\.step\(|trainer\w*(\(.*\))?\.(train|fit)\(", re.I)
REPOSITORIES = (
    "649453932/Chinese-Text-Classification-Pytorch", "AnswerDotAI/fsdp_qlora", "BlinkDL/RWKV-LM",
    "DLLXW/baby-llama2-chinese", "EleutherAI/sparsify", "FlagOpen/FlagEmbedding", "KellerJordan/cifar10-airbench",
    "LambdaLabsML/distributed-training-guide", "Lightning-AI/lightning-thunder", "Morizeyao/GPT2-Chinese",
    "MorvanZhou/PyTorch-Tutorial", "ShawhinT/YouTube-Blog", "THUDM/P-tuning-v2", "alxndrTL/mamba.py",
    "aws-samples/awsome-distributed-training", "charent/ChatLM-mini-Chinese", "chenyuntc/pytorch-book",
    "codertimo/BERT-pytorch", "danielmamay/grokking", "datawhalechina/self-llm", "facebookresearch/lingua",
    "gordicaleksa/pytorch-GAT", "gordicaleksa/pytorch-original-transformer", "harvardnlp/annotated-transformer",
    "huggingface/nanoVLM", "huggingface/optimum", "huggingface/picotron", "huggingface/setfit",
    "huggingface/smol-course", "hunkim/PyTorchZeroToAll", "hyunwoongko/transformer",
    "jadore801120/attention-is-all-you-need-pytorch", "karpathy/autoresearch", "karpathy/llm.c", "kubeflow/trainer",
    "locuslab/TCN", "locuslab/deq", "lucidrains/MEGABYTE-pytorch", "lucidrains/PaLM-rlhf-pytorch",
    "lucidrains/block-recurrent-transformer-pytorch", "lucidrains/native-sparse-attention-pytorch",
    "lucidrains/performer-pytorch", "lucidrains/recurrent-memory-transformer-pytorch", "lucidrains/reformer-pytorch",
    "lucidrains/simple-hierarchical-transformer", "lucidrains/tiny-recursive-model", "lucidrains/vit-pytorch",
    "lyhue1991/eat_pytorch_in_20_days", "ne7ermore/torch-light", "openai/weak-to-strong", "optuna/optuna-examples",
    "princeton-nlp/SimCSE", "pytorch/PiPPy", "pytorch/ao", "pytorch/benchmark", "pytorch/torchft",
    "rasbt/deeplearning-models", "rasbt/faster-pytorch-blog", "rasbt/gradient-accumulation-blog",
    "rasbt/machine-learning-book", "rasbt/pytorch-memory-optim", "rasbt/reasoning-from-scratch",
    "ritchieng/deep-learning-wizard", "salesforce/awd-lstm-lm", "seungeunrho/minimalRL", "shibing624/MedicalGPT",
    "simplescaling/s1", "spro/practical-pytorch", "ssbuild/llm_finetuning", "stas00/ml-engineering", "tkipf/pygcn",
    "tunib-ai/large-scale-lm-tutorials", "vwxyzjn/cleanrl", "wandb/examples", "wdndev/tiny-llm-zh",
    "yangjianxin1/Firefly",
)  # fmt: skip


def can_run(path: Path, checkout: Path) -> bool:
    """The rule above, for one script."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return bool(STEPS.search(text)) and _whole(path, checkout, set())


def _whole(path: Path, checkout: Path, seen: set[Path]) -> bool:
    """Whether this file and every one of the checkout that it imports can run."""
    if path in seen:
        return True
    seen.add(path)
    text = path.read_text(encoding="utf-8", errors="replace")
    if GONE.search(text) or not runnable(path, checkout):
        return False
    beside = (path.parent, checkout, checkout / "src")
    found = (_file(place, name) for name in imported(ast.parse(text)) for place in beside)
    return all(_whole(one, checkout, seen) for one in found if one is not None)


def _file(place: Path, name: str) -> Path | None:
    for one in (place / f"{name}.py", place / name / "__init__.py"):
        if one.is_file():
            return one
    return None


@dataclass(frozen=True, slots=True)
class Draw:
    """One draw by the rule above: from which repositories, by which seed, how many, and where it is written."""

    repositories: tuple[str, ...]
    seed: int
    drawn: int
    most: int
    out: Path

    def of(self, left: dict[str, list[str]]) -> list[dict[str, str]]:
        """What is drawn of the runnable scripts of each repository."""
        chance = random.Random(self.seed)
        order = {name: chance.sample(paths, len(paths)) for name, paths in sorted(left.items())}
        turns = [(name, paths[turn]) for turn in range(self.most) for name, paths in order.items() if turn < len(paths)]
        return [{"repository": name, "path": path} for name, path in sorted(turns[: self.drawn])]


def main(words: list[str], draw: Draw | None = None) -> int:
    """Lists and draws; 1 where a repository is missing."""
    draw = draw or Draw(REPOSITORIES, SEED, DRAWN, MOST, OUT)
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--packages", type=Path)
    asked = parser.parse_args(words)
    sys.path += [str(asked.packages)] if asked.packages else []
    folder = asked.folder
    missing = [name for name in draw.repositories if not (folder / name).is_dir()]
    if missing:
        print(f"missing below {folder}: {', '.join(missing)}")
        return 1
    listing = {name: listed(folder / name) for name in draw.repositories}
    left = {
        name: [path for path in paths if can_run(folder / name / path, folder / name)]
        for name, paths in listing.items()
    }
    commits = {name: (folder / f"{name}.commit").read_text().strip() for name in draw.repositories}
    found = draw.of({name: paths for name, paths in left.items() if paths})
    counts = {name: [len(paths), len(left[name])] for name, paths in listing.items()}
    document = {"seed": draw.seed, "commits": commits, "listed and left": counts, "drawn": found}
    draw.out.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{sum(map(len, listing.values()))} listed, {sum(map(len, left.values()))} left, {len(found)} drawn")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
