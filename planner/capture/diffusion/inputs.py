"""What diffusers' models are called with: one sample of each input, by a model's configuration.

diffusers 0.42: examples/unconditional_image_generation/train_unconditional.py,
examples/text_to_image/train_text_to_image.py and train_text_to_image_sdxl.py,
examples/dreambooth/train_dreambooth_sd3.py and train_dreambooth_flux.py; models/unets/unet_2d.py, unet_2d_condition.py,
models/transformers/dit_transformer_2d.py, pixart_transformer_2d.py, transformer_sd3.py, transformer_flux.py,
models/autoencoders/autoencoder_kl.py (forward of each).
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

_CLIP, _T5, _T5_OF_PIXART = 77, 512, 300
"""Tokens of a prompt: CLIP's, T5's as FLUX and as PixArt have it. SD3 has CLIP's and 256 of T5's behind one another."""
_OF_SD3 = _CLIP + 256
_SIDE = 128
"""Latent rows of a picture of 1,024 pixels, where a configuration names none."""


class Inputs(NamedTuple):
    """One sample."""

    stored: Mapping[str, torch.Tensor]
    """By the name of the argument, without a batch; `a.b` is `b` of a table `a`. The noisy sample stands first."""
    whole: Mapping[str, torch.Tensor] = {}
    """What all samples of a batch share."""


def _number(config: Any, name: str, otherwise: int) -> int:
    found = config.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) else otherwise


def _picture(config: Any) -> torch.Tensor:
    size = config.get("sample_size")
    rows, columns = size if isinstance(size, list | tuple) else (_number(config, "sample_size", _SIDE),) * 2
    return torch.zeros(_number(config, "in_channels", 4), rows, columns)


def _step() -> torch.Tensor:
    return torch.zeros((), dtype=torch.long)


def _plain(config: Any) -> Inputs:
    classes = {"class_labels": _step()} if config.get("num_class_embeds") else {}
    return Inputs({"sample": _picture(config), "timestep": _step(), **classes})


def _conditioned(config: Any) -> Inputs:
    width = config.get("cross_attention_dim")
    width = width[0] if isinstance(width, list | tuple) else width
    found = {**_plain(config).stored, "encoder_hidden_states": torch.zeros(_CLIP, width or 1280)}
    if config.get("addition_embed_type") == "text_time":  # SDXL: pooled text, and six numbers of the crop
        pooled = config["projection_class_embeddings_input_dim"] - 6 * config["addition_time_embed_dim"]
        found["added_cond_kwargs.text_embeds"] = torch.zeros(pooled)
        found["added_cond_kwargs.time_ids"] = torch.zeros(6)
    return Inputs(found)


def _dit(config: Any) -> Inputs:
    return Inputs({"hidden_states": _picture(config), "timestep": _step(), "class_labels": _step()})


def _pixart(config: Any) -> Inputs:
    text = torch.zeros(_T5_OF_PIXART, _number(config, "caption_channels", 4096))
    sized = {"added_cond_kwargs.resolution": torch.zeros(2), "added_cond_kwargs.aspect_ratio": torch.zeros(1)}
    more = sized if _number(config, "sample_size", _SIDE) == _SIDE else {}
    return Inputs({"hidden_states": _picture(config), "timestep": _step(), "encoder_hidden_states": text, **more})


def _sd3(config: Any) -> Inputs:
    return Inputs(
        {
            "hidden_states": _picture(config),
            "timestep": _step(),
            "encoder_hidden_states": torch.zeros(_OF_SD3, config["joint_attention_dim"]),
            "pooled_projections": torch.zeros(config["pooled_projection_dim"]),
        }
    )


def _flux(config: Any) -> Inputs:
    patches = (_SIDE // 2) ** 2
    stored = {
        "hidden_states": torch.zeros(patches, config["in_channels"]),
        "timestep": torch.zeros(()),
        "encoder_hidden_states": torch.zeros(_T5, config["joint_attention_dim"]),
        "pooled_projections": torch.zeros(config["pooled_projection_dim"]),
    }
    if config.get("guidance_embeds"):
        stored["guidance"] = torch.zeros(())
    return Inputs(stored, {"img_ids": torch.zeros(patches, 3), "txt_ids": torch.zeros(_T5, 3)})


def _autoencoder(config: Any) -> Inputs:
    return Inputs(
        {"sample": torch.zeros(_number(config, "in_channels", 3), *(_number(config, "sample_size", 512),) * 2)}
    )


CLASSES: Mapping[str, Callable[[Any], Inputs]] = {
    "UNet2DModel": _plain,
    "UNet2DConditionModel": _conditioned,
    "DiTTransformer2DModel": _dit,
    "PixArtTransformer2DModel": _pixart,
    "SD3Transformer2DModel": _sd3,
    "FluxTransformer2DModel": _flux,
    "AutoencoderKL": _autoencoder,
}
"""Classes by name, as `planner/model/source/diffused.py` lists them."""
