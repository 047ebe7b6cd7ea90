"""Command lines: sound ones with words swapped for others, and words alone."""

import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random

from benchmarks.hostile.case import Case
from benchmarks.hostile.values import text

_LINES = Path(__file__).resolve().parents[1] / "data" / "command_lines" / "lines.txt"
_WRITES = ("-o", "--output", "--save", "--snapshot", "--plot", "--timeline", "--write", "--update", "--force")
_RUNS = ("--execute", "explore", "doctor")
_GPUS = (
    "8xH100", "0xH100", "-1xT4", "1x1x1xT4", "99999999xH100", "8xH1000", "xxT4", "1xT4,2xL4", "\u0668xH100", "cpu",
    "0xcpu", "auto", "p5.48xlarge", "2xp5.48xlarge", "1e3xT4", "8XH100", " 8x H100", "8xH100:",
    "8xx", "8xH100\n", "70000x8xH100", "1x", "x", "1xA100-1GB", "1xH100 [red]", "8×H100",
    "2147483648xT4", "999999999999999999999999xT4",
)  # fmt: skip


@cache
def _sound() -> Sequence[tuple[str, ...]]:
    lines = [line.strip() for line in _LINES.read_text(encoding="utf-8").splitlines()]
    split = [tuple(shlex.split(line.partition(" ## ")[0])) for line in lines if line and line[0] not in "#$"]
    return [
        words for words in split if not {*_WRITES, *_RUNS} & set(words) and not any(w.endswith(".py") for w in words)
    ]


@cache
def _options() -> Sequence[str]:
    return sorted({word for words in _sound() for word in words if word.startswith("--")})


def lines(seed: int, rng: Random) -> Case:
    """A sound line with one to three words spoilt. What writes or runs by the user's own word is not among them."""
    words = list(rng.choice(_sound()))
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(words) + 1)
        draw = rng.random()
        if draw < 0.5 and at < len(words):
            words[at] = text(rng)
        elif draw < 0.65 and at < len(words):
            del words[at]
        elif draw < 0.8:
            words[at:at] = [rng.choice(_options())]
        elif draw < 0.9:
            words[at:at] = [rng.choice(_options()), text(rng)]
        else:
            words[at:at] = [text(rng)]
    return Case(kind="words", seed=seed, words=_passable(words))


def gpus(seed: int, rng: Random) -> Case:
    """GPU specifications, and a user's own GPUs."""
    spec = rng.choice(_GPUS) if rng.random() < 0.6 else text(rng)
    files: dict[str, bytes] = {}
    if rng.random() < 0.5:
        from benchmarks.hostile.tools import toml_text

        fields = ("memory", "usable", "bandwidth", "bf16", "link", "node", "price", text(rng))
        values = (text(rng), "80GiB", -1, 0, 10**30, True, [], float("nan"), "0 GiB", "1e400 GB", "9" * 4000)
        table = {rng.choice(fields): rng.choice(values) for _ in range(3)}
        files["plan.toml"] = toml_text(rng, {"gpus": {rng.choice(("my-card", "H100", text(rng))): table}})
        spec = rng.choice((spec, "8xmy-card", "my-card"))
    words = rng.choice((("EleutherAI/pythia-70m", "--gpus", spec, "--pin"), ("gpus", spec), ("gpus", spec, "--json")))
    return Case(kind="gpus", seed=seed, words=_passable(words), files=files)


def hosts(seed: int, rng: Random) -> Case:
    """Hosts, ports and ranks of a launch that is only shown."""
    from benchmarks.hostile.documents import plan_file

    named = ("a,b", "a:1,b", "a:99999999,b", "-x,b", "a,a", ",", "a b,c", "[::1]:3,b", "é,b", "a" * 300, text(rng))
    words = ["--execute", "train.py", "--plan", "plan.json", "--dry-run", "--hosts", rng.choice(named)]
    words += ["--machine-rank", rng.choice(("0", "1", "-1", "2", "²", "9" * 30, text(rng)))] * rng.choice((0, 1))
    words += ["--max-restarts", rng.choice(("0", "-1", "9" * 30, text(rng)))] * rng.choice((0, 0, 1))
    words += ["--", text(rng)] * rng.choice((0, 0, 1))
    files = {"train.py": b"print(1)\n", "plan.json": plan_file(rng, spoilt=False)}
    return Case(kind="hosts", seed=seed, words=_passable(words), files=files)


def _passable(words: Sequence[str]) -> tuple[str, ...]:
    """As a process can be given them: no null, halves of pairs only where bytes that are no UTF-8 come from."""
    return tuple(word.replace("\0", "\\0").replace("\ud800", "\udc80") for word in words)
