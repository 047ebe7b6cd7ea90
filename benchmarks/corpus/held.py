"""A second draw of training scripts, by a fresh seed, from files that the first one left and from new repositories.

    .venv/bin/python -m benchmarks.corpus.held FOLDER [--packages FOLDER]

Of the scripts that `listing` lists, those remain that were not drawn, and whose text lets them run on what is
installed:

- every module that is imported anywhere in the file is installed, lies under --packages, or beside the script, at the
  root of the checkout or of its `src`;
- no argument or name is used that transformers 5 or TRL 1 no longer have (REMOVED), and no torchvision.

The draw takes one of each repository in turn, at most MOST of one, until DRAWN are drawn. Writes held_scripts.json:
repository, commit, path.
"""

import argparse
import ast
import importlib.util
import json
import random
import re
import sys
from functools import cache
from pathlib import Path

from benchmarks.corpus.listing import OUT as FIRST
from benchmarks.corpus.listing import REPOSITORIES, listed

OUT = Path(__file__).parent / "held_scripts.json"
SEED, DRAWN, MOST = 27, 52, 5
NEW = (
    "graykode/nlp-tutorial", "jcjohnson/pytorch-examples", "jingyaogong/minimind", "karpathy/ng-video-lecture",
    "lucidrains/titans-pytorch", "yunjey/pytorch-tutorial",
)  # fmt: skip
REMOVED = re.compile(
    r"evaluation_strategy\s*=|\bload_in_[48]bit\s*=|max_seq_length\s*=|\btokenizer\s*=\s*tokenizer|logging_dir\s*="
    r"|from transformers import .*\bAdamW\b|torchvision|torchtext|torchaudio"
)


def runnable(path: Path, checkout: Path) -> bool:
    """Whether the text lets it run on what is installed: the rule above."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if REMOVED.search(text):
        return False
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    beside = [path.parent, checkout, checkout / "src"]
    return all(
        _installed(top) or any((place / top).is_dir() or (place / f"{top}.py").is_file() for place in beside)
        for top in imported(tree)
    )


def imported(tree: ast.AST) -> set[str]:
    """Top-level names of all modules that are imported, relative imports aside."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


@cache
def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def main(words: list[str]) -> int:
    """Lists and draws; 1 where a repository is missing."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--packages", type=Path)
    asked = parser.parse_args(words)
    sys.path += [str(asked.packages)] if asked.packages else []
    folder, names = asked.folder, sorted((*REPOSITORIES, *NEW))
    missing = [name for name in names if not (folder / name).is_dir()]
    if missing:
        print(f"missing below {folder}: {', '.join(missing)}")
        return 1
    first = json.loads(FIRST.read_text())
    before = {(one["repository"], one["path"]) for one in first["drawn"]}
    chance = random.Random(SEED)
    order = {}
    for name in names:
        paths = first["listing"][name] if name in first["listing"] else listed(folder / name)
        left = [path for path in paths if (name, path) not in before and runnable(folder / name / path, folder / name)]
        order[name] = chance.sample(left, len(left))
    turns = [(name, paths[turn]) for turn in range(MOST) for name, paths in order.items() if turn < len(paths)]
    drawn = [{"repository": name, "path": path} for name, path in sorted(turns[:DRAWN])]
    commits = {name: (folder / f"{name}.commit").read_text().strip() for name in names if order[name]}
    left = {name: len(paths) for name, paths in order.items() if paths}
    document = {"seed": SEED, "commits": commits, "left": left, "drawn": drawn}
    OUT.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{sum(left.values())} left, {len(drawn)} drawn")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
