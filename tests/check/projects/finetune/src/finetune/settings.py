"""The settings of a run, read from YAML."""

from dataclasses import dataclass, fields
from pathlib import Path

import yaml


@dataclass
class Settings:
    batch_size: int = 2
    sequence_length: int = 1024
    learning_rate: float = 2e-5
    warmup: int = 10
    steps: int = 40
    seed: int = 17


def read_settings(path: str) -> Settings:
    values = yaml.safe_load(Path(path).read_text())
    known = {field.name for field in fields(Settings)}
    return Settings(**{key: value for key, value in values.items() if key in known})
