"""What every reader takes: a file's table, what must come out, and the few words that all families share."""

import json
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

Content = dict[str, Any]
OPTIMIZERS = {
    "adamw_torch": "adamw", "adamw_torch_fused": "adamw-fused", "adamw_bnb_8bit": "adamw-8bit",
    "adamw_8bit": "adamw-8bit",
    "paged_adamw_8bit": "paged-adamw-8bit", "adafactor": "adafactor", "muon": "muon", "adamw_hf": "adamw-forloop",
    "sgd": "sgd",
}  # fmt: skip
WORLD = 8
"""Processes where nothing says how many."""


@dataclass
class Read:
    """What must come out."""

    options: dict[str, Any] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    refused: str = ""
    kind: str = ""


def content(path: Path) -> Content:
    """A file's table."""
    text = path.read_text()
    if path.suffix == ".toml":
        return tomllib.loads(text)
    if path.suffix == ".json":
        try:
            return json.loads(text)
        except ValueError:
            return {}
    return yaml.safe_load(text)


def truth(value: Any) -> bool:
    return str(value).lower() in ("true", "yes", "1", "on")


def take_optimizer(read: Read, name: str) -> None:
    if name in OPTIMIZERS:
        read.options["optimizer"] = OPTIMIZERS[name]
    else:
        read.said.append(name)


def take_world(read: Read, spread: str | None = None) -> None:
    """DDP on eight, one device alone, or as the file says."""
    count = read.options.get("processes", WORLD)
    read.options["strategy"] = spread or ("single" if count == 1 else "ddp")


def precision_of(table: Content, default: str) -> str:
    if truth(table.get("bf16")):
        return "bf16-mixed"
    if truth(table.get("fp16")):
        return "fp16-mixed"
    return "fp32" if "bf16" in table else default
