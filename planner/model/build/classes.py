"""Which transformers class a config means, importing no more than that class's own module."""

import importlib
from collections.abc import Mapping
from typing import Any

from gpu_plan.planner.errors import InputError, UsageError

# Tried in this order where `architectures` names no class that transformers has: training heads first, bare
# last.
_AUTO_MAPPINGS = (
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "MODEL_FOR_CTC_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_MAPPING_NAMES",
)


def config_class_of(config: Mapping[str, Any]) -> type[Any]:
    """transformers config class for `config["model_type"]`.

    Raises UsageError (one line, naming --trust-remote-code) when transformers has no such model, InputError
    when the value is missing or not text. Mirrors transformers models/auto/configuration_auto.py
    `AutoConfig.from_pretrained` (ministral heuristic included), without its remote-code question.
    """
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES, model_type_to_module_name

    model_type = config.get("model_type")
    if model_type is None:
        raise InputError("config: model_type is missing, so the model's class is unknown; add it to the config.json")
    if not isinstance(model_type, str):
        raise InputError(f"config: model_type must be text, not {type(model_type).__name__}")
    if model_type == "mistral" and "layer_types" in config:
        model_type = "ministral"
    if model_type not in CONFIG_MAPPING_NAMES:
        raise UsageError(_not_native(config, model_type))
    name = CONFIG_MAPPING_NAMES[model_type]
    package = importlib.import_module(f"transformers.models.{model_type_to_module_name(model_type)}")
    found = getattr(package, name, None) or getattr(importlib.import_module("transformers"), name)
    return found  # type: ignore[no-any-return]


def _not_native(config: Mapping[str, Any], model_type: str) -> str:
    architecture = _architecture(config) or model_type
    return (
        f"transformers has no class for {architecture[:80]} (model_type {model_type[:80]}): "
        "its code lives in the model's own repository and needs --trust-remote-code"
    )


def _architecture(config: Mapping[str, Any]) -> str | None:
    names = config.get("architectures")
    if names is None or names == []:
        return None
    if not isinstance(names, list) or not isinstance(names[0], str):
        raise InputError("config: architectures must be a list of class names")
    return names[0]


def model_class_of(config: Mapping[str, Any], config_class: type[Any]) -> tuple[type[Any], str | None]:
    """(class, note): `architectures[0]` where transformers has it for this config, else the Auto classes'
    choice.
    """
    architecture = _architecture(config)
    package = importlib.import_module(config_class.__module__.rsplit(".", 1)[0])
    found = _native(package, architecture, config_class) if architecture else None
    if found is not None:
        return found, None
    model_type = str(getattr(config_class, "model_type", "") or config["model_type"])
    found = _from_auto_mappings(package, model_type, config_class)
    if found is None:
        raise UsageError(_not_native(config, model_type))
    if architecture and _plain(architecture) != _plain(found.__name__):
        return found, f"architecture {architecture[:80]} is not in transformers; built as {found.__name__}"
    if not architecture:
        return found, f"config names no architecture; built as {found.__name__}"
    return found, None


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _native(package: Any, name: str, config_class: type[Any]) -> type[Any] | None:
    """Class `name` of the model's own package, or of another one, when it takes this config."""
    found = getattr(package, name, None) if name.isidentifier() else None
    if found is None and name.isidentifier() and _is_mapped(name):
        found = getattr(importlib.import_module("transformers"), name, None)
    takes = getattr(found, "config_class", None)
    if not isinstance(found, type) or not isinstance(takes, type) or not issubclass(config_class, takes):
        return None
    return found


def _is_mapped(name: str) -> bool:
    """Whether any Auto class lists `name`: keeps arbitrary attributes of transformers out of reach of a
    config.
    """
    return any(name == listed for mapping in _AUTO_MAPPINGS for listed in _names(mapping).values())


def _names(mapping: str) -> Mapping[str, Any]:
    from transformers.models.auto import modeling_auto

    return getattr(modeling_auto, mapping)  # type: ignore[no-any-return]


def _from_auto_mappings(package: Any, model_type: str, config_class: type[Any]) -> type[Any] | None:
    for mapping in _AUTO_MAPPINGS:
        listed = _names(mapping).get(model_type)
        for name in (listed,) if isinstance(listed, str) else (listed or ()):
            found = _native(package, name, config_class)
            if found is not None:
                return found
    return None
