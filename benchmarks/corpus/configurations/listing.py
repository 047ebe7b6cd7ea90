"""Lists the training configurations of checked-out public repositories by a rule, and draws from them by a seed.

    .venv/bin/python -m benchmarks.corpus.configurations.listing FOLDER

FOLDER holds the files of one commit of each repository as OWNER/NAME/PATH, and the commit in OWNER/NAME.commit. A file
is a training configuration by what its text says, never by whether `plan from-config` can read it:

- it ends in `.yaml`, `.yml`, `.json` or `.toml`, is at most 64 KiB, and no folder above it begins with a dot or is
  named for results or benchmarks;
- it is text in which at least two different words of WORDS, or one of ALONE, stand as keys;
- no file with the same text came before it, repositories and paths in order.

The draw shuffles each repository's files by the seed and takes the first MOST of a repository whose own format is asked
for (FAMILIES), and the first FEW of every other one. A second draw takes half as many of what is left. Nothing is
replaced afterwards. Writes drawn.json beside this module: repository, commit, path.
"""

import hashlib
import json
import random
import re
import sys
from pathlib import Path

OUT = Path(__file__).parent / "drawn.json"
SEED, MOST, FEW = 20261122, 24, 7
LARGEST = 64 * 1024
_ENDS = frozenset({".yaml", ".yml", ".json", ".toml"})
_NO_PLACE = re.compile(
    r"(^|/)(\.[^/]*|results?|benchmarks?|node_modules|locales)/|(^|/)(package(-lock)?|pyproject|tsconfig[^/]*)\."
)
WORDS = (
    "learning_rate", "lr", "optimizer", "optim", "micro_batch_size", "per_device_train_batch_size", "batch_size",
    "train_micro_batch_size_per_gpu", "train_batch_size", "local_batch_size", "global_batch_size",
    "gradient_accumulation_steps", "num_train_epochs", "num_epochs", "epochs", "max_steps", "warmup_steps",
    "num_processes", "mixed_precision", "gradient_checkpointing", "lora_r", "lora_rank", "base_model",
    "model_name_or_path", "weight_decay", "lr_scheduler", "lr_scheduler_type", "max_seq_length", "sequence_len",
    "seq_len", "seq_length", "cutoff_len", "max_length", "max_seq_len", "fp16", "bf16",
)  # fmt: skip
FAMILIES = (
    "Lightning-AI/litgpt", "allenai/open-instruct", "axolotl-ai-cloud/axolotl", "hiyouga/LLaMA-Factory",
    "huggingface/accelerate", "huggingface/alignment-handbook", "huggingface/trl", "microsoft/DeepSpeedExamples",
    "modelscope/ms-swift", "pytorch/torchtitan", "pytorch/torchtune", "unslothai/unsloth",
)  # fmt: skip
ALONE = ("zero_optimization", "distributed_type", "deepspeed_config", "fsdp_config")
_KEYS = {
    word: re.compile(rf"""^\s*(-\s*)?(\[+[\w.]*)?["']?(?:\w+\.)*{word}["']?\]*\s*[:=\]]""", re.M)
    for word in (*WORDS, *ALONE)
}
_INLINE = {word: re.compile(rf"""["']{word}["']\s*:""") for word in (*WORDS, *ALONE)}


def is_configuration(path: str, text: str) -> bool:
    """The rule above, but for the last point."""
    if Path(path).suffix not in _ENDS or _NO_PLACE.search(path) or len(text.encode()) > LARGEST:
        return False
    there = {word for word in _KEYS if _KEYS[word].search(text) or _INLINE[word].search(text)}
    return len(there & set(WORDS)) >= 2 or bool(there & set(ALONE))


def listed(folder: Path) -> dict[str, list[str]]:
    """Paths of each repository's configurations, sorted."""
    found: dict[str, list[str]] = {}
    seen: set[str] = set()
    for commit in sorted(folder.glob("*/*.commit")):
        checkout = commit.with_suffix("")
        name = f"{checkout.parent.name}/{checkout.name}"
        for path in sorted(checkout.rglob("*")):
            if not path.is_file() or path.suffix not in _ENDS:
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            short = str(path.relative_to(checkout))
            digest = hashlib.sha256(text.encode()).hexdigest()
            if is_configuration(short, text) and digest not in seen:
                seen.add(digest)
                found.setdefault(name, []).append(short)
    return found


def drawn(listing: dict[str, list[str]]) -> list[dict[str, str]]:
    """What is drawn of each repository."""
    chance = random.Random(SEED)
    found: list[dict[str, str]] = []
    for name, paths in sorted(listing.items()):
        first = chance.sample(paths, len(paths))[: MOST if name in FAMILIES else FEW]
        found += [{"repository": name, "path": path} for path in sorted(first)]
    return found


def held(listing: dict[str, list[str]], before: list[dict[str, str]]) -> list[dict[str, str]]:
    """The second draw, of what the first has left."""
    chance = random.Random(SEED + 1)
    gone = {(one["repository"], one["path"]) for one in before}
    found: list[dict[str, str]] = []
    for name, paths in sorted(listing.items()):
        left = [path for path in paths if (name, path) not in gone]
        first = chance.sample(left, len(left))[: (MOST if name in FAMILIES else FEW) // 2]
        found += [{"repository": name, "path": path} for path in sorted(first)]
    return found


def main(words: list[str]) -> int:
    """Lists and draws."""
    folder = Path(words[0])
    listing = listed(folder)
    commits = {name: (folder / f"{name}.commit").read_text().strip() for name in listing}
    first = drawn(listing)
    document = {"seed": SEED, "commits": commits, "listing": listing, "drawn": first, "held": held(listing, first)}
    OUT.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{sum(map(len, listing.values()))} listed of {len(listing)}, {len(first)} and {len(document['held'])} drawn")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
