"""A config as its transformers class completes it: what a file leaves out has the class's default."""

from collections.abc import Mapping
from typing import Any

from gpu_plan.planner.model.build.construct import built_config


def text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a config that describes its decoder, as plain values. InputError for what the class refuses."""
    found: dict[str, Any] = built_config(config).get_text_config(decoder=True).to_dict()
    return found
