"""One micro batch of training inputs for a model of any family, without padding.

Floating-point tensors are on meta. Integer tensors have known values, because models read some of them on the
host (image grids, placeholder positions, token types): `values` keeps them on the CPU, `tensors` holds their
meta twins.

No attention mask is passed: batches are packed to the full length, as in pretraining; a mask of ones, which a
padding collator would add, costs memory only where a model expands it.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.family import (
    forward_names,
    max_positions_of,
    special_tokens,
    text_config_of,
    vocab_size_of,
)
from gpu_plan.planner.trace.inputs.known import MAX_ELEMENTS

IGNORED_LABEL = -100


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBatch:
    """Keyword arguments of one forward pass, and what is known about them."""

    tensors: dict[str, Any]
    """Name to meta tensor (or plain value such as `return_loss=True`)."""
    values: dict[str, torch.Tensor]
    """Name to CPU tensor of the same shape and dtype, for those whose values are known."""
    loss: str
    """Which loss the step ends in, one line."""
    notes: tuple[str, ...] = field(default=())


def training_batch(model: nn.Module, *, batch: int, seq_len: int) -> TrainingBatch:
    """Inputs of the kind that `model` trains on: `batch` samples of `seq_len` tokens where there are tokens.

    Vision and audio models take their config's native size. InputError when a value cannot be met, one line.
    """
    if batch < 1 or seq_len < 1:
        raise InputError(f"micro batch and sequence length must be at least 1, not {batch} and {seq_len}")
    names = forward_names(model)
    config: Any = getattr(model, "config", None)
    if config is None:
        raise InputError(f"{type(model).__name__} has no config: its factory must return (module, inputs)")
    builder = _Builder(model=model, config=config, names=names, batch=batch, seq_len=seq_len)
    return builder.build()


def training_inputs(model: nn.Module, *, batch: int, seq_len: int) -> dict[str, Any]:
    """`training_batch(...).tensors`: the keyword arguments of one forward pass on meta."""
    return training_batch(model, batch=batch, seq_len=seq_len).tensors


@dataclass(slots=True, kw_only=True)
class _Builder:
    model: nn.Module
    config: Any
    names: frozenset[str]
    batch: int
    seq_len: int
    given: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def build(self) -> TrainingBatch:
        if "pixel_values" in self.names and "input_ids" in self.names and "return_loss" in self.names:
            loss = self._contrastive()
        elif "pixel_values" in self.names and "input_ids" in self.names:
            from gpu_plan.planner.trace.inputs.multimodal import add_images

            self._tokens()
            self.notes += add_images(self.model, self.given)
            loss = self._token_labels()
        elif "pixel_values" in self.names:
            loss = self._vision()
        elif "input_features" in self.names or "input_values" in self.names:
            loss = self._audio()
        elif "input_ids" in self.names:
            self._tokens()
            loss = self._token_labels()
        else:
            raise InputError(
                f"no training inputs are known for {type(self.model).__name__}: let a factory return (module, inputs)"
            )
        return self._finish(loss)

    def _finish(self, loss: str) -> TrainingBatch:
        tensors, values = {}, {}
        for name, value in self.given.items():
            known = isinstance(value, torch.Tensor) and value.device.type != "meta"
            tensors[name] = torch.empty_like(value, device="meta") if known else value
            if known:
                values[name] = value
        return TrainingBatch(tensors=tensors, values=values, loss=loss, notes=tuple(self.notes))

    def _ids(self, length: int, vocab: int | None) -> torch.Tensor:
        """[batch, length] int64 token ids: arbitrary, fixed, none of the config's special tokens.

        Without values where no host read would be followed: a batch of GBs is not filled for nothing.
        """
        size = vocab or 2
        special = set(special_tokens(self.config))
        usable = [token for token in range(min(size, 1000)) if token not in special] or [0]
        if self.batch * length > MAX_ELEMENTS:
            return torch.empty(self.batch, length, dtype=torch.int64, device="meta")
        row = torch.tensor(usable, device="cpu")[torch.arange(length, device="cpu") % len(usable)]
        return row.repeat(self.batch, 1)

    def _tokens(self) -> None:
        self.given["input_ids"] = self._ids(self.seq_len, vocab_size_of(self.config))

    def _token_labels(self) -> str:
        """Labels of a text model; seq2seq models take decoder labels of the same length as the source."""
        name = type(self.model).__name__
        if "start_positions" in self.names:
            self.given["start_positions"] = torch.zeros(self.batch, dtype=torch.int64, device="cpu")
            self.given["end_positions"] = torch.ones(self.batch, dtype=torch.int64, device="cpu")
            return "cross entropy over the answer's start and end positions"
        if "labels" not in self.names:
            return self._no_own_loss(name)
        if any(word in name for word in ("ForSequenceClassification", "ForMultipleChoice")):
            self.given["labels"] = torch.zeros(self.batch, dtype=torch.int64, device="cpu")
            return "cross entropy over classes"
        self.given["labels"] = self._ids(self.seq_len, vocab_size_of(self.config))
        if getattr(self.config, "is_encoder_decoder", False):
            return "cross entropy over the decoder's tokens"
        if "ForMaskedLM" in name:
            return "masked language modelling: cross entropy over all positions"
        return "cross entropy over the next token"

    def _no_own_loss(self, name: str) -> str:
        self.notes.append(
            f"{name} has no loss of its own; the mean of its last hidden state stands in for the task's loss"
        )
        return "mean of the last hidden state"

    def _image_size(self, part: Any) -> tuple[int, int]:
        size = getattr(part, "image_size", None)
        if isinstance(size, int):
            return size, size
        if isinstance(size, list | tuple) and len(size) == 2:
            return int(size[0]), int(size[1])
        self.notes.append(f"{type(self.model).__name__}'s config names no image size; 224 x 224 is assumed")
        return 224, 224

    def _pixels(self, part: Any) -> torch.Tensor:
        height, width = self._image_size(part)
        channels = getattr(part, "num_channels", None) or getattr(part, "in_channels", None) or 3
        return torch.empty(self.batch, channels, height, width, device="meta")

    def _contrastive(self) -> str:
        text = text_config_of(self.config)
        length = min(self.seq_len, max_positions_of(self.config) or self.seq_len)
        if length != self.seq_len:
            self.notes.append(f"captions are {length} tokens, the model's positions")
        self.given["input_ids"] = self._ids(length, getattr(text, "vocab_size", None))
        self.given["pixel_values"] = self._pixels(self.config.vision_config)
        self.given["return_loss"] = True
        return "contrastive loss between the images and the captions of the micro batch"

    def _vision(self) -> str:
        self.given["pixel_values"] = self._pixels(self.config)
        if "labels" not in self.names:
            return self._no_own_loss(type(self.model).__name__)
        self.given["labels"] = torch.zeros(self.batch, dtype=torch.int64, device="cpu")
        return "cross entropy over classes"

    def _audio(self) -> str:
        if "input_values" in self.names:
            return self._waveform()
        if getattr(self.config, "num_mel_bins", None) and getattr(self.config, "max_source_positions", None):
            return self._whisper()
        width = getattr(self.config, "feature_projection_input_dim", None) or 80
        self.given["input_features"] = torch.empty(self.batch, self.seq_len, width, device="meta")
        return self._frame_labels(self.seq_len)

    def _whisper(self) -> str:
        """Two feature frames per encoder position: 3000 frames (30 s) for every published Whisper."""
        frames = 2 * self.config.max_source_positions
        self.given["input_features"] = torch.empty(self.batch, self.config.num_mel_bins, frames, device="meta")
        length = min(self.seq_len, self.config.max_target_positions)
        if length != self.seq_len:
            self.notes.append(f"transcripts are {length} tokens, the decoder's positions")
        self.given["labels"] = self._ids(length, self.config.vocab_size)
        return "cross entropy over the decoder's tokens"

    def _waveform(self) -> str:
        """`seq_len` counts encoder frames; samples are chosen to give that many through the strided
        convolutions.
        """
        samples = self.seq_len
        for kernel, stride in zip(reversed(self.config.conv_kernel), reversed(self.config.conv_stride), strict=True):
            samples = (samples - 1) * stride + kernel
        self.notes.append(f"audio of {samples} samples ({self.seq_len} encoder frames)")
        self.given["input_values"] = torch.empty(self.batch, samples, device="meta")
        return self._frame_labels(self.seq_len)

    def _frame_labels(self, frames: int) -> str:
        if "labels" not in self.names:
            return self._no_own_loss(type(self.model).__name__)
        self.given["labels"] = self._ids(max(1, frames // 4), vocab_size_of(self.config))
        return "connectionist temporal classification, a transcript of a quarter of the frames"


def training_loss(model: nn.Module, outputs: Any) -> torch.Tensor:
    """Scalar to run backward from: the output if it is a scalar, else its `.loss`, else its first element.

    A first element that is no scalar is averaged, which is the loss of models without their own.
    InputError when there is no tensor with a gradient among them.
    """
    found = outputs if isinstance(outputs, torch.Tensor) else getattr(outputs, "loss", None)
    if found is None and isinstance(outputs, dict):
        found = outputs.get("loss", next(iter(outputs.values()), None))
    elif found is None and isinstance(outputs, list | tuple) and outputs:
        found = outputs[0]
    if not isinstance(found, torch.Tensor) or not found.is_floating_point():
        raise InputError(f"{type(model).__name__} returned {type(outputs).__name__}, which holds no loss tensor")
    return found if found.dim() == 0 else found.mean()
