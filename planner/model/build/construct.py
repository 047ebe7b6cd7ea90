"""The real transformers class on the meta device: exact parameters, no storage, no weight initialisation."""

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from gpu_plan.planner.errors import InputError, NotBuiltError, PlanError
from gpu_plan.planner.model.build.classes import config_class_of, model_class_of
from gpu_plan.planner.model.build.flash import flash_allowed, implementation_for
from gpu_plan.planner.model.build.guard import MAX_PARAMETERS, bounded_construction, check_config_sizes
from gpu_plan.planner.model.build.lean.imports import dynamo_away, lean_imports
from gpu_plan.planner.model.build.quiet_logs import quiet_logs
from gpu_plan.planner.model.build.specs import NOTES
from gpu_plan.planner.model.build.value_head import add_value_head
from gpu_plan.planner.model.config_sizes import validate_config
from gpu_plan.planner.model.config_values import WITH_VALUE_HEAD
from gpu_plan.planner.model.family import attends


def build_model(
    config: Mapping[str, Any],
    *,
    trust_remote_code: bool = False,
    attention: str = "sdpa",
    dtype: torch.dtype = torch.float32,
    overrides: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Build the class that `config` (a parsed config.json) means, in training mode, on the meta device.

    `attention`: `sdpa` is what transformers chooses by itself (eager for the few classes without it), `eager`
    forces eager, `flash` asks for FlashAttention-2, which needs no package here. `dtype`: that of the
    parameters, but for the modules that transformers keeps in fp32. `overrides`: merged into the config, key by
    key and recursively.

    A `quantization_config` is dropped, with a note: training is planned on full weights.
    Raises UsageError when transformers has no such class, InputError when the class refuses the values, each
    one line.
    """
    if trust_remote_code:
        raise NotBuiltError("--trust-remote-code")
    values = _merged(_plain_values(config), overrides or {})
    validate_config(values, "config")
    check_config_sizes(values)
    _drop_implementations(values)
    notes = _drop_quantization(values)
    valued = _take_value_head(values)
    with lean_imports():
        config_class = config_class_of(values)
    with _one_line(config_class.__name__), _quiet():
        built_config = config_class.from_dict(values)
        notes += _prepare_for_training(built_config)
    with lean_imports():
        model_class, note = model_class_of(values, config_class)
    notes += [note] if note else []
    with _one_line(model_class.__name__), _quiet(), dynamo_away():
        model = _construct(model_class, built_config, attention, dtype)
        if valued:
            add_value_head(model)
    if attention != "eager" and built_config._attn_implementation == "eager" and attends(model):
        notes.append(f"{model_class.__name__} has no sdpa attention; transformers runs it eager")
    setattr(model, NOTES, tuple(notes))
    return model


def _take_value_head(values: dict[str, Any]) -> bool:
    """Whether a value head stands beside the model's own; its name is the model's own from then on."""
    names = values.get("architectures")
    if not isinstance(names, list) or not names or not str(names[0]).endswith(WITH_VALUE_HEAD):
        return False
    values["architectures"] = [str(names[0]).removesuffix(WITH_VALUE_HEAD), *names[1:]]
    return True


def built_config(config: Mapping[str, Any]) -> Any:
    """The config object that `config` means, with its class's defaults; errors as of `build_model`."""
    values = _plain_values(config)
    validate_config(values, "config")
    _drop_quantization(values)
    config_class = config_class_of(values)
    with _one_line(config_class.__name__), _quiet():
        return config_class.from_dict(values)


def _construct(model_class: type[Any], config: Any, attention: str, dtype: torch.dtype) -> nn.Module:
    """Mirrors transformers modeling_utils.py `PreTrainedModel.from_pretrained`: dtype context, then fp32
    exceptions.
    """
    flash = implementation_for(model_class) if attention == "flash" else None
    name = attention if attention == "eager" else None if flash is None else flash.name
    kwargs = {"attn_implementation": name} if name else {}
    found = nullcontext() if flash is None else flash_allowed(flash)
    with found, torch.device("meta"), bounded_construction(model_class.__name__):
        model: nn.Module = model_class._from_config(config, dtype=dtype, **kwargs)
    _move_strays(model)
    total = sum(parameter.numel() for parameter in model.parameters())
    if total > MAX_PARAMETERS:
        raise InputError(f"config: {model_class.__name__} would have {total:.1e} parameters; check its sizes")
    if dtype != torch.float32:
        _keep_in_fp32(model, dtype)
    return model.train()


def _move_strays(model: nn.Module) -> None:
    """Tensors made by the legacy `torch.Tensor(n)` constructor ignore the device context (wav2vec2)."""
    if any(tensor.device.type != "meta" for tensor in (*model.parameters(), *model.buffers())):
        model.to("meta")


def _keep_in_fp32(model: Any, dtype: torch.dtype) -> None:
    """Upcast what transformers never loads in 16 bit (modeling_utils.py `_get_dtype_plan`)."""
    kept = set(getattr(model, "_keep_in_fp32_modules_strict", None) or ())
    if dtype == torch.float16:
        kept |= set(getattr(model, "_keep_in_fp32_modules", None) or ())
    for name, parameter in model.named_parameters():
        if kept.intersection(name.split(".")):
            parameter.data = parameter.data.to(torch.float32)


def _plain_values(config: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(config, Mapping):
        raise InputError(f"config: expected an object of names and values, not {type(config).__name__}")
    check_config_sizes(config)
    return copy.deepcopy(dict(config))


def _merged(values: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in overrides.items():
        inner = values.get(key)
        values[key] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, Mapping) else value
    return values


def _drop_implementations(values: dict[str, Any]) -> None:
    """Which kernels run is the workload's to say; a config may carry what its author had installed."""
    for key, value in list(values.items()):
        if key.lstrip("_").startswith(("attn_implementation", "experts_implementation")):
            del values[key]
        elif isinstance(value, dict):
            _drop_implementations(value)


def _drop_quantization(values: dict[str, Any]) -> list[str]:
    notes = []
    for holder in (values, values.get("text_config")):
        quantization = holder.pop("quantization_config", None) if isinstance(holder, dict) else None
        if quantization:
            method = quantization.get("quant_method") if isinstance(quantization, dict) else None
            named = f"the checkpoint's quantization ({method or 'unnamed'})"
            notes.append(f"{named} is ignored: full weights stand in the job's type")
    return notes


def _prepare_for_training(config: Any) -> list[str]:
    """Settle, on a config and its parts, what training sets or what would make two steps differ; returns
    notes.
    """
    notes = []
    for part in (config, *(getattr(config, key, None) for key in getattr(config, "sub_configs", {}))):
        if hasattr(part, "use_cache"):  # training keeps no key-value cache; the Trainer switches it off as well
            part.use_cache = False
        for key in ("layerdrop", "encoder_layerdrop", "decoder_layerdrop"):
            if getattr(part, key, 0):
                notes.append(f"{key} is taken as 0: every layer runs, as in the step that needs most")
                setattr(part, key, 0.0)
    if getattr(config, "is_encoder_decoder", False) and getattr(config, "decoder_start_token_id", None) is None:
        # Shifting labels needs one; where only the generation config has it, T5 and its kin use padding.
        config.decoder_start_token_id = getattr(config, "pad_token_id", None) or 0
    return list(dict.fromkeys(notes))


@contextmanager
def _one_line(class_name: str) -> Iterator[None]:
    """Turn whatever a class raises on nonsensical values into one line."""
    try:
        yield
    except PlanError:
        raise
    except ImportError as problem:
        raise InputError(f"{class_name} needs a package that is not installed: {_first_line(problem)}") from None
    except RecursionError:
        raise InputError(f"config: {class_name} recurses without end on these values") from None
    except MemoryError:
        raise InputError(f"config: {class_name} asks for more memory than there is; check its sizes") from None
    except Exception as problem:
        if "does not support Flash Attention" in str(problem):
            raise InputError(f"{class_name} has no flash attention in transformers: use --attention sdpa") from None
        raise InputError(f"config: {class_name} refuses these values: {_first_line(problem)}") from None


def _first_line(problem: BaseException) -> str:
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    text = " ".join(lines[:3]) if lines else type(problem).__name__
    return f"{type(problem).__name__}: {text[:300]}" if len(text) < 40 else text[:300]


@contextmanager
def _quiet() -> Iterator[None]:
    """transformers logs and warns about harmless config keys."""
    with quiet_logs(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def from_factory(factory: Callable[[], Any]) -> tuple[nn.Module, dict[str, Any] | tuple[Any, ...] | None]:
    """Call a user's factory under the meta device: it returns a module, or (module, inputs).

    Inputs are a dict (keywords) or a tuple (positions) whose tensors' first dimension is the micro batch;
    their values are dropped, but for small integer tensors that a trace of inputs may keep. InputError,
    one line, for anything else that it raises or returns.
    """
    name = getattr(factory, "__qualname__", type(factory).__name__)
    try:
        with torch.device("meta"):
            result = factory()
    except PlanError:
        raise
    except Exception as problem:
        raise InputError(f"factory {name} failed: {_first_line(problem)}") from None
    module, inputs = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    if not isinstance(module, nn.Module):
        raise InputError(f"factory {name} returned {type(module).__name__}, not a torch.nn.Module or (module, inputs)")
    if inputs is not None and not isinstance(inputs, dict | tuple):
        raise InputError(f"factory {name}: inputs must be a dict or a tuple, not {type(inputs).__name__}")
    return module.to("meta").train(), inputs
