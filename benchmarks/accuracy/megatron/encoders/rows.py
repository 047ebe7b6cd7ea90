"""Arguments of T5's and BERT's regression runs in the words of a GPT's, and what is built of them."""

from collections.abc import Mapping
from typing import Any

from benchmarks.accuracy.megatron.encoders.bert import Bert
from benchmarks.accuracy.megatron.encoders.t5 import T5
from benchmarks.accuracy.megatron.jobs import Other

_WORD_PIECES = 30522
"""Of BERT's uncased vocabulary, which BertWordPieceLowerCase reads."""
_BEGIN_AND_END = 2
"""[BOS] and [EOS], which Megatron-LM's tokenizer adds (bert_tokenization.py: _BertWordPieceTokenizer)."""


def as_gpt(family: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with those names under which a GPT has the same."""
    found = dict(args)
    found["--vocab-size"] = _WORD_PIECES + _BEGIN_AND_END + int(args.get("--vocab-extra-ids") or 0)
    if family == "t5":
        found["--num-layers"], found["--seq-length"] = args["--encoder-num-layers"], args["--encoder-seq-length"]
    if args.get("--spec") == "local":
        found["--transformer-impl"] = "local"
    return found


def other_of(family: str, args: Mapping[str, Any]) -> Other | None:
    """What is built; None of a GPT."""
    if family == "t5":
        return T5(decoder_layers=int(args["--decoder-num-layers"]), decoder_len=int(args["--decoder-seq-length"]))
    return Bert() if family == "bert" else None
