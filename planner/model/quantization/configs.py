"""Which scheme a published config means: its `quantization_config`, read as transformers reads it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.config_reader import shown
from gpu_plan.planner.model.quantization.compressed import compressed_scheme
from gpu_plan.planner.model.quantization.scheme import Method, Scheme
from gpu_plan.planner.model.quantization.values import check_pattern, flag, names, number, one_of
from gpu_plan.planner.model.quantization.words import AWQ_GROUPS, GPTQ_BITS, GPTQ_GROUPS
from gpu_plan.planner.nearest import did_you_mean

_WHERE = "config: quantization_config"
_TORCH_DTYPES = ("float32", "float16", "bfloat16", "uint8", "int8")


def scheme_of(config: Mapping[str, Any]) -> Scheme | None:
    """The scheme that a config.json asks for; None where it stores plain weights.

    Looks where transformers looks (quantizers/auto.py: get_hf_quantizer): in the config, then in its `text_config`.
    InputError in one line for a method that is unknown or not planned yet, and for values that make no sense.
    """
    text = config.get("text_config")
    for holder in (config, text if isinstance(text, Mapping) else {}):
        found = holder.get("quantization_config") or holder.get("compression_config")
        if not found:
            continue
        if not isinstance(found, Mapping):
            raise InputError(f"{_WHERE} is {shown(found)}: write an object")
        return _scheme(_experts_type(config, dict(found)))
    return None


def stored_scheme(config: Mapping[str, Any]) -> Scheme | None:
    """`scheme_of`, and None for methods that are not planned: full weights are what is trained then."""
    try:
        return scheme_of(config)
    except InputError:
        return None


def _experts_type(config: Mapping[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """DeepSeek-V4 says outside what its experts are stored as (models/deepseek_v4/configuration_deepseek_v4.py)."""
    if config.get("model_type") == "deepseek_v4" and config.get("expert_dtype") and "expert_dtype" not in values:
        values["expert_dtype"] = config["expert_dtype"]
    return values


def _scheme(values: dict[str, Any]) -> Scheme:
    method = _method(values)
    if method not in _READERS:
        known = ", ".join(sorted(_READERS))
        raise InputError(
            f"{_WHERE}: quant_method {shown(method)} is not known: {known}.{did_you_mean(method, _READERS)}"
        )
    return _READERS[method](values)


def _method(values: Mapping[str, Any]) -> str:
    """transformers quantizers/auto.py: AutoQuantizationConfig.from_dict."""
    four, eight = flag(values, "load_in_4bit", _WHERE), flag(values, "load_in_8bit", _WHERE)
    if four and eight:
        raise InputError(f"{_WHERE}: load_in_4bit and load_in_8bit are both set: keep one")
    if four or eight:
        return "bitsandbytes_4bit" if four else "bitsandbytes_8bit"
    method = values.get("quant_method")
    if method is None:
        raise InputError(f"{_WHERE} has no quant_method: it does not say how the weights are stored")
    if not isinstance(method, str):
        raise InputError(f"{_WHERE}: quant_method is {shown(method)}: write a name such as 'gptq'")
    if method == "bitsandbytes":
        raise InputError(f"{_WHERE}: bitsandbytes without load_in_4bit or load_in_8bit: set one")
    return method


def _skipped(values: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    return names(values, key, _WHERE)


def _int8(values: dict[str, Any]) -> Scheme:
    threshold = values.get("llm_int8_threshold", 6.0)
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or threshold < 0:
        raise InputError(f"{_WHERE}: llm_int8_threshold is {shown(threshold)}: write a number of at least 0")
    if flag(values, "llm_int8_has_fp16_weight", _WHERE):
        raise InputError(f"{_WHERE}: llm_int8_has_fp16_weight keeps 16-bit weights: it is not a quantised model")
    return Scheme(
        method=Method.INT8,
        word="int8",
        bits=8,
        prequantised=True,
        threshold=float(threshold),
        skip=_skipped(values, "llm_int8_skip_modules"),
        config=MappingProxyType(values),
    )


def _four_bit(values: dict[str, Any]) -> Scheme:
    kind = one_of(values, "bnb_4bit_quant_type", ("fp4", "nf4"), _WHERE, default="fp4")
    double = flag(values, "bnb_4bit_use_double_quant", _WHERE)
    return Scheme(
        method=Method.BNB_4BIT,
        word=kind + ("-dq" if double else ""),
        bits=4,
        group_size=64,
        number=kind,
        prequantised=True,
        double_quant=double,
        # transformers utils/quantization_config.py: BitsAndBytesConfig.__init__
        compute_dtype=_dtype(values, "bnb_4bit_compute_dtype", "float32"),
        quant_storage=_dtype(values, "bnb_4bit_quant_storage", "uint8"),
        skip=_skipped(values, "llm_int8_skip_modules"),
        config=MappingProxyType(values),
    )


def _dtype(values: Mapping[str, Any], key: str, default: str) -> str:
    written = values.get(key)
    plain = {**values, key: str(written).removeprefix("torch.")} if written is not None else {}
    return one_of(plain, key, _TORCH_DTYPES, _WHERE, default=default)


def _gptq(values: dict[str, Any]) -> Scheme:
    bits = number(values, "bits", _WHERE, default=None, allowed=GPTQ_BITS)
    group = number(values, "group_size", _WHERE, default=128, allowed=(-1, *GPTQ_GROUPS))
    desc_act = flag(values, "desc_act", _WHERE)
    dynamic = values.get("dynamic") or {}
    if not isinstance(dynamic, Mapping):
        raise InputError(f"{_WHERE}: dynamic is {shown(dynamic)}: write an object of patterns")
    for pattern in dynamic:
        check_pattern(pattern.removeprefix("-:").removeprefix("+:"), f"{_WHERE}: dynamic")
        if not pattern.startswith("-:"):
            raise InputError(f"{_WHERE}: dynamic gives {shown(pattern)} other bits than the rest: not planned yet")
    named = f"gptq-{bits}bit-{'channel' if group == -1 else group}"
    return Scheme(
        method=Method.GPTQ,
        word=named + ("-act" if desc_act else ""),
        bits=bits,
        group_size=None if group == -1 else group,
        prequantised=True,
        symmetric=flag(values, "sym", _WHERE, default=True),
        desc_act=desc_act,
        config=MappingProxyType(values),
    )


def _awq(values: dict[str, Any]) -> Scheme:
    bits = number(values, "bits" if "bits" in values else "w_bit", _WHERE, default=4, allowed=(4,))
    group = number(
        values,
        "group_size" if "group_size" in values else "q_group_size",
        _WHERE,
        default=128,
        allowed=(-1, *AWQ_GROUPS),
    )
    layout = str(values.get("version", values.get("format", "gemm"))).lower()
    if layout != "gemm":
        raise InputError(f"{_WHERE}: AWQ's layout {shown(layout)} is not planned yet: gemm is")
    return Scheme(
        method=Method.AWQ,
        word=f"awq-{bits}bit-{'channel' if group == -1 else group}",
        bits=bits,
        group_size=None if group == -1 else group,
        prequantised=True,
        symmetric=not flag(values, "zero_point", _WHERE, default=True),
        skip=_skipped(values, "modules_to_not_convert"),
        config=MappingProxyType(values),
    )


def _fp8(values: dict[str, Any]) -> Scheme:
    """transformers utils/quantization_config.py: FineGrainedFP8Config, whose `weight_block_size` may be null."""
    sizes = values.get("weight_block_size", (128, 128))
    if sizes is not None and not (
        isinstance(sizes, list | tuple) and len(sizes) == 2 and all(type(size) is int and size > 0 for size in sizes)
    ):
        raise InputError(
            f"{_WHERE}: weight_block_size is {shown(sizes)}: write two positive numbers such as [128, 128]"
        )
    if values.get("expert_dtype") not in (None, "fp8", "fp4"):
        raise InputError(f"{_WHERE}: expert_dtype is {shown(values['expert_dtype'])}: write fp8 or fp4")
    block = None if sizes is None else (sizes[0], sizes[1])
    return Scheme(
        method=Method.FP8,
        word="fp8" if block else "fp8-tensor",
        bits=8,
        block=block,
        number="float",
        prequantised=True,
        activations=one_of(values, "activation_scheme", ("dynamic", "static"), _WHERE, default="dynamic"),
        scale_dtype="float8_e8m0fnu" if values.get("scale_fmt") == "ue8m0" else "float32",
        skip=_skipped(values, "modules_to_not_convert"),
        config=MappingProxyType(values),
    )


def _mxfp4(values: dict[str, Any]) -> Scheme:
    return Scheme(
        method=Method.MXFP4,
        word="mxfp4",
        bits=4,
        group_size=32,
        number="float",
        prequantised=True,
        skip=_skipped(values, "modules_to_not_convert"),
        config=MappingProxyType(values),
    )


def _compressed(values: dict[str, Any]) -> Scheme:
    return compressed_scheme(values, _WHERE)


_READERS = {
    "bitsandbytes_8bit": _int8,
    "bitsandbytes_4bit": _four_bit,
    "gptq": _gptq,
    "awq": _awq,
    "fp8": _fp8,
    "mxfp4": _mxfp4,
    "compressed-tensors": _compressed,
}
