"""YAML, JSON and TOML of other tools, and of `plan check`."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import yaml

from benchmarks.hostile.case import CANARY, Case, Special
from benchmarks.hostile.values import as_json, broken, spoil, text, value

_SCENE = Path(__file__).resolve().parents[1] / "data" / "command_lines" / "scene"
_ODD: tuple[Special, ...] = ("fifo", "socket", "folder", "null", "zero", "environ", "loop", "gone", "unreadable")
_BOMBS = (
    "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{c}: &{c} [{','.join(['*' + chr(ord(c) - 1)] * 9)}]\n" for c in "bcdefghij")
    + "base_model: *j\n",
    "b: &b {k: 1}\n" + "".join(f"b{n}: &b{n} {{<<: [*b{n - 1 if n else ''}, *b]}}\n" for n in range(30)),
    "b0: &b0 {k: 1}\n" + "".join(f"b{n}: &b{n} {{<<: [*b{n - 1}, *b{n - 1}]}}\n" for n in range(1, 30)),
    "base_model: &a [*a]\n",
    "{a: " * 9000,
    "- " * 50_000,
    f'base_model: !!python/object/apply:os.system ["touch {CANARY}"]\n',
    f'!!python/object/new:os.system ["touch {CANARY}"]\n',
    "base_model: 1" + ":11" * 5000 + "\n",
    "base_model: 0x" + "f" * 6000 + "\n",
    "? " * 3000,
    "base_model: !!timestamp 2001-99-99\n",
    "base_model: x\nbase_model: y\n",
    "base_model: |\n  --execute=x\n  b\n",
    "%YAML 9.9\n---\na: b\n...\n---\nc\n",
)  # fmt: skip


@cache
def _sound() -> Mapping[str, Any]:
    names = ("accelerate-fsdp2.yaml", "axolotl.yaml", "llamafactory.yaml", "training_args.yaml", "deepspeed-zero2.json",
             "deepspeed-nvme.json")  # fmt: skip
    return {name: yaml.safe_load((_SCENE / name).read_text(encoding="utf-8")) for name in names}


def configuration(seed: int, rng: Random) -> Case:
    """`plan from-config`."""
    name = rng.choice(sorted(_sound()))
    document = spoil(rng, _sound()[name], rng.choice((1, 1, 2, 4)))
    draw = rng.random()
    if draw < 0.15:
        content = rng.choice(_BOMBS).encode()
    elif name.endswith(".json") or draw < 0.3:
        content = as_json(document)
    else:
        content = yaml_text(document)
    if rng.random() < 0.15:
        content = broken(rng, content)
    files: dict[str, bytes | Special] = {name: content}
    if rng.random() < 0.06:
        files[name] = rng.choice(_ODD)
    more = rng.choice(
        ((), (), ("--json",), ("--toml",), ("--gpus", "H100"), ("--gpus", "8xH100", "--toml"), ("--kind", text(rng)))
    )
    words = ("from-config", name, *more)
    return Case(
        kind="tools",
        seed=seed,
        words=tuple(w.replace("\0", "0").replace("\ud800", "\udc80") for w in words),
        files=files,
    )


def tables(seed: int, rng: Random) -> Case:
    """`plan check` and the main job below a plan.toml or a pyproject.toml."""
    document = {
        "seq-len": "128",
        "checks": {
            "train": {
                "model": "./model",
                "gpus": "1xT4",
                "options": {"pin": True, "micro-batch": 1},
                "budget": {"fits": True},
            }
        },
    }
    spoilt = spoil(rng, document, rng.choice((1, 2, 3)))
    content = toml_text(rng, spoilt if isinstance(spoilt, dict) else document)
    draw = rng.random()
    if draw < 0.1:
        content = rng.choice(
            (b"a = " + b"[" * 50_000, b".".join([b"a"] * 90_000) + b"=1", b"a = " + b"9" * 9000, b"\xff\xfe")
        )
    elif draw < 0.25:
        content = broken(rng, content)
    name = "plan.toml"
    if rng.random() < 0.3:
        name, content = "pyproject.toml", b"[tool.plan]\n" + content
    files: dict[str, bytes | Special] = {name: content if rng.random() < 0.95 else rng.choice(_ODD)}
    files["model/config.json"] = b'{"model_type": "llama", "num_hidden_layers": -1}'
    baseline = {"document": "check-baseline", "schema_version": 1, "job": "train", "x": value(rng)}
    if rng.random() < 0.3:
        files[".plan/train.json"] = files["plan-baselines/train.json"] = as_json(baseline)
    words = rng.choice(
        (("check",), ("check", "train"), ("check", "--json"), ("check", "--format", "github"), ("gpus",))
    )
    return Case(kind="tables", seed=seed, words=words, files=files)


def yaml_text(document: Any) -> bytes:
    """As PyYAML writes it, or as JSON, which is YAML too, where it cannot."""
    try:
        made: str = yaml.safe_dump(document, allow_unicode=True)
        return made.encode("utf-8", "surrogatepass")
    except (ValueError, yaml.YAMLError):
        return as_json(document)


def toml_text(rng: Random, document: Mapping[str, Any]) -> bytes:
    """TOML of nested tables, values in its own forms where it has them."""
    lines: list[str] = []
    _table(document, "", lines)
    return "\n".join(lines).encode("utf-8", "surrogatepass") + b"\n"


def _table(document: Mapping[str, Any], path: str, lines: list[str]) -> None:
    for key, held in document.items():
        if not isinstance(held, dict):
            lines.append(f"{_key(key)} = {_inline(held)}")
    for key, held in document.items():
        if isinstance(held, dict):
            inner = f"{path}.{_key(key)}" if path else _key(key)
            lines.append(f"[{inner}]")
            _table(held, inner, lines)


def _key(key: str) -> str:
    return json.dumps(str(key), ensure_ascii=True)


def _inline(held: Any) -> str:
    if isinstance(held, list):
        return "[" + ", ".join(map(_inline, held)) + "]"
    if isinstance(held, dict):
        return "{" + ", ".join(f"{_key(key)} = {_inline(item)}" for key, item in held.items()) + "}"
    if held is None:
        return '"null"'
    if isinstance(held, int) and not isinstance(held, bool) and abs(held) > 10**300:
        return "1" + "0" * 400
    return json.dumps(held).replace("NaN", "nan").replace("Infinity", "inf")
