"""Arguments of regression runs of T5, BERT, hybrids and LLaVA in the words of a GPT's, and what is built of them."""

from collections.abc import Mapping
from typing import Any

from benchmarks.accuracy.megatron.encoders.bert import Bert
from benchmarks.accuracy.megatron.encoders.t5 import T5
from benchmarks.accuracy.megatron.hybrids.mixer import Mamba2
from benchmarks.accuracy.megatron.hybrids.model import KINDS, PREDICTS, STAGE, Hybrid
from benchmarks.accuracy.megatron.jobs import Other
from benchmarks.accuracy.megatron.llava.model import Llava
from benchmarks.accuracy.megatron.llava.vision import Image
from benchmarks.accuracy.megatron.overlapped import Overlapped

LLAVA = "multimodal-llava"
_HYBRIDS = ("hybrid", "nemotron")
FAMILIES = ("t5", "bert", *_HYBRIDS, LLAVA)
_WORD_PIECES = 30522
"""Of BERT's uncased vocabulary, which BertWordPieceLowerCase reads."""
_BEGIN_AND_END = 2
"""[BOS] and [EOS], which Megatron-LM's tokenizer adds (bert_tokenization.py: _BertWordPieceTokenizer)."""
_PATTERN = "--hybrid-layer-pattern"


def as_gpt(family: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with those names under which a GPT has the same."""
    found = dict(args)
    if family in _HYBRIDS:
        found["--num-layers"] = len(_layers(args))
        return found
    if family == LLAVA:
        return _language_model_of(found)
    found["--vocab-size"] = _WORD_PIECES + _BEGIN_AND_END + int(args.get("--vocab-extra-ids") or 0)
    if family == "t5":
        found["--num-layers"], found["--seq-length"] = args["--encoder-num-layers"], args["--encoder-seq-length"]
    if args.get("--spec") == "local":
        found["--transformer-impl"] = "local"
    return found


def stages_of(args: Mapping[str, Any]) -> int | None:
    """Stages that a hybrid's pattern marks; None where it marks none."""
    count = str(args.get(_PATTERN) or "").count(STAGE)
    return count + 1 if count else None


def hybrid_not_replayed(args: Mapping[str, Any]) -> str:
    """Layers of a hybrid that are not replayed; empty where all are."""
    unknown = sorted(set(str(args.get(_PATTERN) or "")) - KINDS)
    return f"{_PATTERN} with {' '.join(unknown)}" if unknown else ""


def other_of(family: str, args: Mapping[str, Any]) -> Other | None:
    """What is built; None of a GPT whose micro batches go one after the other."""
    if family == "t5":
        return T5(decoder_layers=int(args["--decoder-num-layers"]), decoder_len=int(args["--decoder-seq-length"]))
    if family in _HYBRIDS:
        return Hybrid(
            pattern=_layers(args),
            mamba=_mamba(args),
            further=tuple(str(args[_PATTERN]).split(PREDICTS)[1:]),
            repeated=bool(args.get("--mtp-use-repeated-layer")),
        )
    if family == LLAVA:
        return Llava(
            image=_image(args), packed=bool(args.get("--use-packed-sequence")) or args["--seq-length"] > _tokens(args)
        )
    if args.get("--overlap-moe-expert-parallel-comm"):
        return Overlapped()
    return Bert() if family == "bert" else None


def _language_model_of(args: dict[str, Any]) -> dict[str, Any]:
    """Of LLaVA's: its tokens are text and patches, padded so that ranks share them evenly, with as many positions in a
    micro batch; the head is its own (pretrain_vlm.py: model_provider; llava_model.py: LLaVAModel's defaults)."""
    context, tensor = (int(args.get(f"--{kind}-parallel-size") or 1) for kind in ("context", "tensor-model"))
    factor = context * 2 if context > 1 else 1
    factor *= tensor if args.get("--sequence-parallel") else 1
    args["--dataloader-seq-length"] = _tokens(args) - _image(args).tokens
    args["--seq-length"] = -(-_tokens(args) // factor) * factor
    args["--max-position-embeddings"] = args["--seq-length"] * int(args["--micro-batch-size"])
    args["--untie-embeddings-and-output-weights"] = True
    return args


def _tokens(args: Mapping[str, Any]) -> int:
    """Of one sample: the text's, and the picture's."""
    return int(args.get("--dataloader-seq-length") or args["--seq-length"]) + _image(args).tokens


def _image(args: Mapping[str, Any]) -> Image:
    return Image(
        height=int(args["--img-h"]),
        width=int(args["--img-w"]),
        patch=int(args["--patch-dim"]),
        layers=int(args.get("--encoder-num-layers") or args["--num-layers"]),
        keeps_class=not args.get("--disable-vision-class-token"),
    )


def _layers(args: Mapping[str, Any]) -> str:
    """Of the decoder: behind it stand those of layers that predict further tokens."""
    return str(args[_PATTERN]).partition(PREDICTS)[0].replace(STAGE, "")


def _mamba(args: Mapping[str, Any]) -> Mamba2:
    heads = args.get("--mamba-num-heads")
    return Mamba2(
        state=int(args.get("--mamba-state-dim") or 128),
        head_dim=int(args.get("--mamba-head-dim") or 64),
        groups=int(args.get("--mamba-num-groups") or 8),
        heads=int(heads) if heads else None,
    )
