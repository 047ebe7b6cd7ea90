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
    found["optimizer"] = _optimizer(given, where)
    found["activation_checkpoint"] = _checkpointing(given, where)
    float8 = _float8(given)
    if float8 is not None:
        found["float8"] = float8
    for key in _BESIDE:
        if isinstance(given.get(key), Call):
            found[key] = _open(given[key])
    loss = given.get("loss")
    if isinstance(loss, Call):
        found["loss"] = {"name": loss.name}
    for key in sorted(given.keys() - _READ - found.keys()):
        found[key] = COMPUTED  # said to be there, and nothing more
    return found


_READ = frozenset((
    "model_spec", "hf_assets_path", "training", "parallelism", "compile", "optimizer", "activation_checkpoint", "loss",
))  # fmt: skip
_BESIDE = (
    "validator", "debug", "profiler", "checkpoint", "metrics", "lr_scheduler", "dataloader", "comm", "tokenizer",
)  # fmt: skip
"""Parts whose own words are told, as tables."""
COMPUTED = "(computed)"
"""What stands for a value that is not known, where none decides the plan."""


def _open(value: object) -> object:
    """A part's named values; what is computed is told as such."""
    if not isinstance(value, Call):
        return COMPUTED if isinstance(value, Unknown) else value
    return {key: COMPUTED if isinstance(item, Call | list) else _open(item) for key, item in value.named.items()}


def _optimizer(given: Mapping[str, object], where: str) -> dict[str, object]:
    """`default_adamw`, or groups of parameters that one optimizer has: components/optimizer/optimizer.py."""
    optimizer = given.get("optimizer")
    if not isinstance(optimizer, Call) or optimizer.name == "default_adamw":
        return {"name": "AdamW"}
    if optimizer.name != "OptimizersContainer":
        return {"name": optimizer.name}
    groups = optimizer.named.get("param_groups")
    calls = [group for group in groups if isinstance(group, Call)] if isinstance(groups, list) else []
    named = [group.named.get("optimizer_name") for group in calls]
    strange = next((name for name in named if name not in ("Adam", "AdamW")), None)
    if not named or strange is not None:
        what = f"is {strange}" if isinstance(strange, str) else "is computed, or none"
        raise InputError(f"{where}: the optimizer of param_groups {what}: Adam and AdamW are planned")
    way = optimizer.named.get("implementation", "fused")
    return {"name": "AdamW", "implementation": way if isinstance(way, str) else COMPUTED}


def _float8(given: Mapping[str, object]) -> dict[str, object] | None:
    """Words of Float8LinearConverter: since 2026-04 (#3127) its recipe is `rowwise` unless written."""
    spec = given.get("model_spec")
    converters = spec.named.get("converters") if isinstance(spec, Call) else None
    named = [item for item in converters if isinstance(item, Call)] if isinstance(converters, list) else []
    found = next((item for item in named if item.name.startswith("Float8Linear")), None)
    if found is None:
        return None
    words: dict[str, object] = {
        key: value for key, value in found.named.items() if key in _FLOAT8 and isinstance(value, str | bool | list)
    }
    return words if "enable_fsdp_float8_all_gather" in found.named else {"recipe_name": "rowwise", **words}


_FLOAT8 = ("enable_fsdp_float8_all_gather", "precompute_float8_dynamic_scale_for_fsdp", "recipe_name", "filter_fqns")


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
