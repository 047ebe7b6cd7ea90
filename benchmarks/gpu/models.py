"""Builds a measured case's model with random weights on the device, and its optimizer. Never imports planner."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.gpu.cases import Case

CATALOG = Path(__file__).resolve().parents[2] / "planner" / "model" / "catalog"
_COMPUTE = {"fp32": torch.float32, "fp16-mixed": torch.float16}


class CannotRun(Exception):
    """A package or a file is missing: one line."""


def compute_dtype(case: Case) -> torch.dtype:
    """In what matrix products run."""
    return _COMPUTE.get(case.precision, torch.bfloat16)


def read_config(case: Case) -> dict[str, Any]:
    """The published config with the case's overrides. CannotRun when it is not there."""
    path = CATALOG / f"{case.model.replace('/', '--')}.json"
    if not path.is_file():
        raise CannotRun(f"no config for {case.model} in {CATALOG}")
    values: dict[str, Any] = json.loads(path.read_text())
    values.pop("quantization_config", None)
    if "layer_types" in values and any(name == "num_hidden_layers" for name, _ in case.overrides):
        values["layer_types"] = values["layer_types"][: dict(case.overrides)["num_hidden_layers"]]
    if case.dry:
        for name in ("pad_token_id", "bos_token_id", "eos_token_id"):  # beyond the small vocabulary
            values[name] = 0
    return values | dict(case.overrides)


def build(case: Case, device: torch.device) -> nn.Module:
    """The case's model, wrapped by peft where it says so, in training mode. CannotRun, or what transformers raises."""
    weights = torch.float32 if case.peft == "none" and case.precision.endswith("mixed") else compute_dtype(case)
    model = _base(case, weights, device)
    if case.peft != "none":
        model = _adapted(case, model, device)
    if case.checkpointing == "full":
        if case.peft == "qlora":  # what peft does together with checkpointing, see prepare_model_for_kbit_training
            model.enable_input_require_grads()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model.train()


def _base(case: Case, dtype: torch.dtype, device: torch.device) -> Any:
    """Whatever class the config names; the device context makes weights where they stay."""
    import transformers

    values = read_config(case)
    name = (values.get("architectures") or ["none"])[0]
    model_class = getattr(transformers, name, None)
    if model_class is None:
        raise CannotRun(f"transformers {transformers.__version__} has no {name}")
    for key in ("torch_dtype", "dtype"):
        values.pop(key, None)
    config = model_class.config_class.from_dict(values)
    for part in (config, getattr(config, "text_config", None)):
        if hasattr(part, "use_cache"):
            part.use_cache = False
    attention = "eager" if case.attention == "eager" else "sdpa"
    # The keyword was torch_dtype before transformers 4.56; the default dtype serves all versions.
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            try:
                model = model_class._from_config(config, attn_implementation=attention, dtype=dtype)
            except (TypeError, ValueError) as problem:
                if "scaled_dot_product_attention" not in str(problem) and "dtype" not in str(problem):
                    raise
                model = model_class._from_config(config, attn_implementation="eager")
    finally:
        torch.set_default_dtype(before)
    for parameter in model.parameters():
        if parameter.is_floating_point() and parameter.dtype is not dtype:
            parameter.data = parameter.data.to(dtype)
    return model.to(device)


def _adapted(case: Case, model: Any, device: torch.device) -> Any:
    try:
        import peft
    except ImportError:
        raise CannotRun("peft is not installed") from None
    if case.peft == "qlora":
        _quantise(case, model, device)
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    config = peft.LoraConfig(
        r=case.lora_rank,
        lora_alpha=case.lora_rank,
        lora_dropout=0.0,
        target_modules=case.lora_targets if case.lora_targets == "all-linear" else case.lora_targets.split(","),
        task_type="CAUSAL_LM",
    )
    return peft.get_peft_model(model, config)


def _quantise(case: Case, model: Any, device: torch.device) -> None:
    """What loading with load_in_4bit leaves: every linear layer but the output head as NF4.

    transformers integrations/bitsandbytes.py: replace_with_bnb_linear; the weights are quantised as they move.
    """
    try:
        import bitsandbytes as bnb
    except ImportError:
        raise CannotRun("bitsandbytes is not installed") from None
    head = model.get_output_embeddings()
    for name, module in list(model.named_modules()):
        if not isinstance(module, nn.Linear) or module is head:
            continue
        layer = bnb.nn.Linear4bit(
            module.in_features,
            module.out_features,
            bias=module.bias is not None,
            compute_dtype=compute_dtype(case),
            compress_statistics=case.double_quant,
            quant_type="nf4",
            device="meta",
        )
        layer.weight = bnb.nn.Params4bit(
            module.weight.data,
            requires_grad=False,
            quant_type="nf4",
            compress_statistics=case.double_quant,
            module=layer,
        ).to(device)
        layer.bias = module.bias
        model.set_submodule(name, layer)
    model.is_loaded_in_4bit = True
    model.is_quantized = True


def make_optimizer(case: Case, model: nn.Module) -> Any:
    """The case's optimizer on the trainable parameters. CannotRun where its package is missing."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    kind = case.optimizer
    if kind.startswith("sgd"):
        return torch.optim.SGD(trained, lr=1e-4, momentum=0.9 if kind == "sgd-momentum" else 0.0)
    if kind in ("adamw-8bit", "paged-adamw-8bit"):
        try:
            import bitsandbytes as bnb
        except ImportError:
            raise CannotRun("bitsandbytes is not installed") from None
        made = bnb.optim.AdamW8bit if kind == "adamw-8bit" else bnb.optim.PagedAdamW8bit
        return made(trained, lr=1e-4)
    flags: dict[str, Any] = {
        "adamw": {},
        "adamw-fused": {"fused": True},
        "adamw-forloop": {"foreach": False},
    }[kind]
    return torch.optim.AdamW(trained, lr=1e-4, **flags)


def make_batch(case: Case, model: Any, device: torch.device) -> dict[str, torch.Tensor]:
    """Full sequences of ordinary tokens with labels, no mask."""
    vocab = min(1000, getattr(model.config.get_text_config(), "vocab_size", 1000))
    row = torch.arange(case.seq_len, device=device) % (vocab - 10) + 10
    ids = row.repeat(case.micro_batch, 1)
    return {"input_ids": ids, "labels": ids.clone()}
