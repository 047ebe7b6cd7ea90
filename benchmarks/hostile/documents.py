"""What this program itself writes, as others might hand it back: plans, runs, manifests, snapshots, prompts, maps."""

import json
import os
import pickle
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.hostile.case import CANARY, Case, Special
from benchmarks.hostile.models import TINY
from benchmarks.hostile.values import as_json, broken, nested, spoil, text, value
from gpu_plan.planner.plan.codec import dump
from gpu_plan.planner.plan.document import to_json
from gpu_plan.planner.plan.saved import saved_to_json
from tests.support.launch_plans import saved
from tests.support.plan_example import llama_on_8xh100
from tests.support.run_example import rank_record, run_record
from tests.support.sweep_example import grid

_ODD: tuple[Special, ...] = ("fifo", "socket", "folder", "null", "zero", "environ", "loop", "gone", "unreadable")


@cache
def _sound(which: str) -> Any:
    from gpu_plan.planner.sweep.document import sweep_to_json

    made = {
        "saved": lambda: saved_to_json(saved("fsdp")),
        "document": lambda: to_json(llama_on_8xh100()),
        "sweep": lambda: sweep_to_json(grid()),
        "run": lambda: dump(run_record()),
        "rank": lambda: dump(rank_record()),
    }
    return json.loads(made[which]())


def plan_file(rng: Random, *, spoilt: bool) -> bytes:
    """A saved plan."""
    return as_json(spoil(rng, _sound("saved"), rng.choice((1, 2, 3))) if spoilt else _sound("saved"))


def plans(seed: int, rng: Random) -> Case:
    """Plans, documents and sweeps, read by everything that reads them."""
    content = as_json(spoil(rng, _sound(rng.choice(("saved", "document", "sweep"))), rng.choice((1, 1, 2, 4))))
    if rng.random() < 0.25:
        content = broken(rng, content)
    files: dict[str, bytes | Special] = {
        "p.json": content,
        "q.json": plan_file(rng, spoilt=False),
        "train.py": b"x = 1\n",
    }
    if rng.random() < 0.06:
        files["p.json"] = rng.choice(_ODD)
    words = rng.choice(
        (
            ("report", "p.json"),
            ("report", "p.json", "--format", "md"),
            ("report", "p.json", "--format", "html"),
            ("report", "p.json", "--format", "csv"),
            ("diff", "p.json", "q.json"),
            ("diff", "q.json", "p.json", "--json"),
            ("--execute", "train.py", "--plan", "p.json", "--dry-run"),
            ("doctor", "train.py", "--plan", "p.json"),
            ("explore", "--plan", "p.json"),
        )
    )
    return Case(kind="plans", seed=seed, words=words, files=files)


def runs(seed: int, rng: Random) -> Case:
    """Run folders: records of the run and its ranks, under names that are none."""
    where = f"runs/{rng.choice(('one', 'two', text(rng).replace('/', '_').replace(chr(0), '0')[:40] or 'x'))}"
    where = where.encode("utf-8", "replace").decode()
    files: dict[str, bytes | Special] = {
        f"{where}/run.json": as_json(spoil(rng, _sound("run"), rng.choice((0, 1, 2)))),
        f"{where}/plan.json": plan_file(rng, spoilt=rng.random() < 0.5),
    }
    for name in rng.sample(("rank-0", "rank-1", "rank-²", "rank-٣", "rank--1", "rank-" + "9" * 100, "rank-x"), 3):
        files[f"{where}/{name}.json"] = as_json(spoil(rng, _sound("rank"), rng.choice((0, 1, 3))))
    if rng.random() < 0.3:
        name = rng.choice(sorted(files))
        held = files[name]
        assert isinstance(held, bytes)
        files[name] = broken(rng, held) if rng.random() < 0.6 else rng.choice(_ODD)
    words = rng.choice(
        (
            ("runs",),
            ("runs", "--json"),
            ("report", where),
            ("report", "latest"),
            ("report", where, "--json"),
            ("report", where, "--format", "html"),
            ("report", where, "--format", "md"),
            ("check", "--measured", where),
            ("report", os.path.basename(where)[:3]),
        )
    )
    return Case(kind="runs", seed=seed, words=words, files=files)


def manifests(seed: int, rng: Random) -> Case:
    """Checkpoints whose manifest lies, for the verb that reads them alone."""
    manifest = {
        "schema_version": 1, "document": "checkpoint", "step": 4, "world_size": 2, "strategy": "ddp", "samples": 16,
        "layout": "replicated", "created": 1.0, "resumable": True, "random_states": True, "parameter_names": ["a"],
        "versions": {}, "files": {"model.safetensors": {"bytes": 8, "crc32": 0}, "../../x": {"bytes": 1, "crc32": 1}},
    }  # fmt: skip
    content = as_json(spoil(rng, manifest, rng.choice((0, 1, 2, 3))))
    if rng.random() < 0.3:
        content = broken(rng, content)
    files: dict[str, bytes | Special] = {
        "c/plan-checkpoint.json": content if rng.random() < 0.9 else rng.choice(_ODD),
        "c/model.safetensors": b"\0" * 8,
        "c/optimizer.bin": _pickle(rng),
    }
    words = (
        "convert",
        rng.choice(("c", "./c/", "c/plan-checkpoint.json")),
        "--to",
        rng.choice(("fsdp", "zero3", text(rng))),
    )
    return Case(
        kind="manifests",
        seed=seed,
        words=tuple(w.replace("\0", "0").replace("\ud800", "\udc80") for w in words),
        files=files,
    )


def snapshots(seed: int, rng: Random) -> Case:
    """Pickles: of snapshots that are spoilt, and of what would run."""
    return Case(
        kind="snapshots",
        seed=seed,
        words=("diff", "--snapshot", "a.pickle", "b.pickle", *rng.choice(((), ("--json",)))),
        files={"a.pickle": _pickle(rng), "b.pickle": _snapshot() if rng.random() < 0.7 else _pickle(rng)},
    )


def prompts(seed: int, rng: Random) -> Case:
    """Device maps and prompts."""
    maps = (value(rng), {"": "disk"}, {"model": text(rng)}, {text(rng): 0}, nested(300, lists=False))
    lines = [as_json(rng.choice(({"prompt": text(rng)}, {"input_ids": [value(rng)]}, value(rng)))) for _ in range(3)]
    files: dict[str, bytes | Special] = {
        "model/config.json": json.dumps(TINY).encode(),
        "map.json": as_json(rng.choice(maps)),
        "p.jsonl": b"\n".join(lines),
    }
    if rng.random() < 0.2:
        files[rng.choice(("map.json", "p.jsonl"))] = rng.choice(_ODD)
    words = ("./model", "--gpus", "cpu", "--task", "infer", "--execute", "@generate", "--dry-run")
    more = rng.choice(
        (("--device-map", "map.json", "--prompts", "p.jsonl"), ("--prompts", "p.jsonl"), ("--device-map", "map.json"))
    )
    return Case(kind="prompts", seed=seed, words=(*words, *more), files=files)


def scripts(seed: int, rng: Random) -> Case:
    """Scripts and notebooks that are read and never run: as far as `--execute --dry-run` goes."""
    source = (Path(__file__).resolve().parents[1] / "data" / "command_lines" / "scene" / "train.py").read_bytes()
    draw = rng.random()
    name = rng.choice(("train.py", "-x.py", "a b.py", "t.ipynb"))
    if draw < 0.3:
        content = broken(rng, source)
    elif draw < 0.6:
        content = rng.choice(_SOURCES)
    else:
        content = as_json(spoil(rng, {"cells": [{"cell_type": "code", "source": ["x = 1\n"]}], "nbformat": 4}, 1))
        name = "t.ipynb"
    content += f"\nopen({CANARY!r}, 'w')\n".encode() if name.endswith(".py") else b""
    files: dict[str, bytes | Special] = {name: content, "p.json": plan_file(rng, spoilt=False)}
    return Case(
        kind="scripts", seed=seed, words=("--execute", f"./{name}", "--plan", "p.json", "--dry-run"), files=files
    )


_SOURCES = (
    b"(" * 90_000,
    b"x = " + b"-" * 50_000 + b"1",
    b"a." * 50_000 + b"a",
    b"x = " + b"9" * 9000,
    b"# coding: rot13\n",
    b"# -*- coding: utf-7 -*-\n",
    b"if 1:\n" + b" " * 100 + b"pass\n" * 3,
    b"\0",
)


class _Runs:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {CANARY}",)


def _event(**changes: Any) -> dict[str, Any]:
    frame = {"filename": "a.py", "line": 3, "name": "f"}
    return {"action": "alloc", "addr": 1, "size": 512, "stream": 0, "frames": [frame], **changes}


def _snapshot(**changes: Any) -> bytes:
    return pickle.dumps({"segments": [], "device_traces": [[_event(**changes)] * 3]})


def _pickle(rng: Random) -> bytes:
    draw = rng.randrange(10)
    if draw == 0:
        return pickle.dumps(_Runs())
    if draw == 1:
        return pickle.dumps({"segments": [_Runs()], "device_traces": [[]]})
    if draw == 2:
        return b"\x80\x04}r\xff\xff\xff\x7f."
    if draw == 3:
        return b"\x80\x04" + b"]" * rng.choice((100, 3_000_000)) + b"."
    if draw == 4:
        return b"\x80\x04\x8e" + (2**62).to_bytes(8, "little") + b"x."
    if draw == 5:
        shared: Any = []
        for _ in range(60):
            shared = [shared, shared]
        return _snapshot(frames=shared, action=rng.choice(("alloc", "free", shared)))
    if draw == 6:
        return broken(rng, _snapshot())
    sound = {"segments": [{"device": 0, "total_size": 512, "blocks": [{"state": "active", "size": 512}]}],
             "device_traces": [[_event()] * 4]}  # fmt: skip
    try:
        return pickle.dumps(spoil(rng, sound, rng.choice((1, 2))))
    except (ValueError, RecursionError):
        return _snapshot(size=10**400)
