"""torchtitan's config_registry.py as the tables of its TOML: read as text, never executed.

Names, of 2026-08: torchtitan/trainer.py (Trainer.Config), torchtitan/config/configs.py, torchtitan/distributed/
activation_checkpoint.py (SelectiveAC is by operator), components/optimizer/optimizer.py (default_adamw is fused).
"""

from collections.abc import Mapping

from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.from_config.python_text import Call, Unknown, built, functions
from gpu_plan.planner.nearest import did_you_mean

_MODES = {"SelectiveAC": "selective", "FullAC": "full", "MemoryBudgetAC": "memory_budget"}
_OF_MODES = "ActivationCheckpointConfig"
"""What earlier and forked registries say them in: by `mode`, which is `selective` where none is named."""
_TRAINER = "Trainer"


def registry_table(text: str, name: str | None, where: str) -> Mapping[str, object]:
    """The tables that configuration `name` would be in a file of TOML.

    Raises UsageError where no name is given or none such is there, InputError for what is no such file, or computes
    what must be known.
    """
    known = functions(text, where)
    offered = [function for function, node in known.items() if not node.args.args and not function.startswith("_")]
    if not offered:
        raise InputError(f"{where} holds no configuration: a function without arguments that returns one")
    if name is None or name not in offered:
        problem = "which configuration?" if name is None else f"--config {name!r} is not in {where}:"
        near = "" if name is None else did_you_mean(name, offered, limit=1)
        shown = ", ".join(offered[:12]) + (", ..." if len(offered) > 12 else "")
        raise UsageError(f"{problem} {where} has {shown}: name one with --config{near}")
    try:
        found = built(name, known, where)
    except RecursionError:
        raise InputError(f"{where}: {name} is nested too deeply") from None
    if not isinstance(found, Call) or found.name != _TRAINER:
        what = found.name if isinstance(found, Call) else "what is computed"
        raise InputError(f"{where}: {name} returns {what}, and no Trainer.Config: a job of another kind")
    return _tables(found, f"{where}: {name}")


def _tables(trainer: Call, where: str) -> dict[str, object]:
    given = trainer.named
    found: dict[str, object] = {"model": _model(given, where), "training": {}, "parallelism": {}}
    for key in ("training", "parallelism", "compile"):
        if key in given:
            found[key] = _plain(given[key], f"{where}, {key}")
    found["optimizer"] = {"name": "AdamW"}
    optimizer = given.get("optimizer")
    if isinstance(optimizer, Call) and optimizer.name != "default_adamw":
        found["optimizer"] = {"name": optimizer.name}
    found["activation_checkpoint"] = _checkpointing(given, where)
    return found


def _model(given: Mapping[str, object], where: str) -> dict[str, object]:
    spec = given.get("model_spec")
    if not isinstance(spec, Call):
        raise InputError(f"{where}: model_spec is computed: nothing here runs to know it")
    flavor = spec.positional[0] if spec.positional else spec.named.get("flavor")
    converters = spec.named.get("converters")
    names = [item.name for item in converters if isinstance(item, Call)] if isinstance(converters, list) else []
    if not isinstance(flavor, str):
        raise InputError(f"{where}: the model's flavor is computed: nothing here runs to know it")
    model: dict[str, object] = {"name": "of config_registry.py", "flavor": flavor}
    assets = given.get("hf_assets_path")
    if isinstance(assets, str):
        model["hf_assets_path"] = assets
    if isinstance(converters, Unknown | Call):
        raise InputError(f"{where}: converters are computed in line {converters.line}: nothing here runs to know them")
    if names:
        model["converters"] = ["float8" if name.startswith("Float8Linear") else name for name in names]
    return model


def _plain(value: object, where: str) -> dict[str, object]:
    """A call's named values; InputError for one that is computed."""
    if not isinstance(value, Call):
        raise InputError(f"{where} is computed: nothing here runs to know it")
    for key, item in value.named.items():
        if isinstance(item, Unknown) or (isinstance(item, Call) and not item.builds):
            raise InputError(f"{where}.{key} is computed in line {item.line}: nothing here runs to know it")
    return {key: item.name if isinstance(item, Call) else item for key, item in value.named.items()}


def _checkpointing(given: Mapping[str, object], where: str) -> dict[str, object]:
    if "activation_checkpoint" not in given:
        return {"mode": "selective", "selective_ac_option": "op"}
    value = given["activation_checkpoint"]
    if value is None:
        return {"mode": "none"}
    mode = None
    if isinstance(value, Call):
        mode = value.named.get("mode", "selective") if value.name == _OF_MODES else _MODES.get(value.name)
    if mode not in ("none", *_MODES.values()):
        raise InputError(
            f"{where}: activation_checkpoint is not one of {', '.join(_MODES)}, or {_OF_MODES} with a mode of theirs"
        )
    return {"mode": mode, "selective_ac_option": "op"} if mode == "selective" else {"mode": mode}
