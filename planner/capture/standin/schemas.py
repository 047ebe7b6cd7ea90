"""Columns of public data sets by their hub id, as their cards state them. Pure data.

A column is its name and its kind: `text:N` some N words, `texts:N:M` N such of M words, `label:N` one of N classes,
`int`, `bool`, `float`, `ints:N`, `flags:N` (one of N is 1), `chat` (a conversation of two turns), `prompt` (its first
turn), `answer` (its last), `image:N` (a picture of N by N pixels), and nested columns in parentheses.
What decides a step's memory are the words: they are those of a long row of the set, rounded up.
"""

from collections.abc import Mapping

_PREFERENCE = {"chosen": "chat", "rejected": "chat", "score_chosen": "float", "score_rejected": "float"}
_ALPACA = {"instruction": "text:24", "input": "text:64", "output": "text:400", "text": "text:500"}
_PAIR = {"sentence1": "text:64", "sentence2": "text:64", "label": "label:2", "idx": "int"}

SCHEMAS: Mapping[str, Mapping[str, str]] = {
    "glue/mrpc": _PAIR,
    "glue/rte": _PAIR,
    "glue/wnli": _PAIR,
    "glue/stsb": {**_PAIR, "label": "float"},
    "glue/qqp": {"question1": "text:64", "question2": "text:64", "label": "label:2", "idx": "int"},
    "glue/qnli": {"question": "text:32", "sentence": "text:200", "label": "label:2", "idx": "int"},
    "glue/mnli": {"premise": "text:200", "hypothesis": "text:40", "label": "label:3", "idx": "int"},
    "glue/sst2": {"sentence": "text:50", "label": "label:2", "idx": "int"},
    "glue/cola": {"sentence": "text:40", "label": "label:2", "idx": "int"},
    "imdb": {"text": "text:1000", "label": "label:2"},
    "ag_news": {"text": "text:120", "label": "label:4"},
    "yelp_review_full": {"label": "label:5", "text": "text:900"},
    "wikitext": {"text": "text:600"},
    "c4": {"text": "text:1000", "timestamp": "text:1", "url": "text:1"},
    "openwebtext": {"text": "text:1000"},
    "fineweb-edu": {"text": "text:1000", "id": "text:1"},
    "tinystories": {"text": "text:400"},
    "squad": {
        "id": "text:1", "title": "text:3", "context": "text:400", "question": "text:30",
        "answers": "(text=texts:1:4, answer_start=ints:1)",
    },
    "gsm8k": {"question": "text:120", "answer": "text:200"},
    "cnn_dailymail": {"article": "text:1500", "highlights": "text:100", "id": "text:1"},
    "samsum": {"id": "text:1", "dialogue": "text:300", "summary": "text:60"},
    "xsum": {"document": "text:1000", "summary": "text:40", "id": "text:1"},
    "alpaca": _ALPACA,
    "alpaca-cleaned": _ALPACA,
    "databricks-dolly-15k": {
        "instruction": "text:40", "context": "text:400", "response": "text:300", "category": "text:1",
    },
    "openassistant-guanaco": {"text": "text:900"},
    "hh-rlhf": {"chosen": "text:400", "rejected": "text:400"},
    "rm-static": {
        "prompt": "text:300", "response": "text:100", "chosen": "text:100", "rejected": "text:100",
    },
    "ultrachat_200k": {"prompt": "text:100", "prompt_id": "text:1", "messages": "chat"},
    "ultrafeedback_binarized": {"prompt": "text:100", "messages": "chat", **_PREFERENCE},
    "ultrafeedback-prompt": {"prompt": "prompt"},
    "capybara": {"source": "text:1", "messages": "chat", "num_turns": "int"},
    "kto-mix-14k": {"prompt": "prompt", "completion": "answer", "label": "bool"},
    "tldr": {"prompt": "text:400", "completion": "text:60"},
    "deepmath-103k": {"prompt": "prompt", "solution": "text:4"},
    "countdown-tasks-3to4": {"target": "int", "nums": "ints:4"},
    "ms_marco": {
        "answers": "texts:1:20", "passages": "(is_selected=flags:10, passage_text=texts:10:80, url=texts:10:1)",
        "query": "text:8", "query_id": "int", "query_type": "text:1", "wellFormedAnswers": "texts:1:20",
    },
    "all-nli": {"anchor": "text:20", "positive": "text:20", "negative": "text:20"},
    "stsb": {"sentence1": "text:30", "sentence2": "text:30", "score": "float"},
    "nanobeir-en/corpus": {"_id": "text:1", "text": "text:200"},
    "nanobeir-en/queries": {"_id": "text:1", "text": "text:8"},
    "nanobeir-en/qrels": {"query-id": "text:1", "corpus-id": "text:1"},
    "nanobeir-en/bm25": {"query-id": "text:1", "corpus-ids": "texts:4:1"},
    "nanobeir-en/relevance": {
        "query-id": "text:1", "positive-corpus-ids": "texts:4:1", "bm25-ranked-ids": "texts:4:1",
    },
    "multi_nli": {
        "promptID": "int", "pairID": "text:1", "premise": "text:60", "premise_binary_parse": "text:120",
        "premise_parse": "text:120", "hypothesis": "text:30", "hypothesis_binary_parse": "text:60",
        "hypothesis_parse": "text:60", "genre": "text:1", "label": "label:3",
    },
    "naruto-blip-captions": {"image": "image:64", "text": "text:30"},
    "pokemon-blip-captions": {"image": "image:64", "text": "text:30"},
    "fill50k": {"image": "image:64", "conditioning_image": "image:64", "text": "text:20"},
    "flowers-102-categories": {"image": "image:64"},
    "opus_books": {"id": "text:1", "translation": "(en=text:60, it=text:60, fr=text:60, de=text:60)"},
}  # fmt: skip
_TRL: Mapping[str, Mapping[str, str]] = {
    "ultrafeedback_binarized": _PREFERENCE,
}
"""Sets that one owner has in another form."""

SPLITS: Mapping[str, tuple[str, ...]] = {
    "ultrachat_200k": ("train_sft", "test_sft", "train_gen", "test_gen"),
    "imdb": ("train", "test", "unsupervised"),
}
DEFAULT_SPLITS = ("train", "validation", "test")


def schema_of(name: str, config: str | None) -> Mapping[str, str] | None:
    """Columns of the set of this id, its owner aside; None for one that is not known here."""
    owner, _, short = name.lower().rpartition("/")
    if owner == "trl-lib" and short in _TRL:
        return _TRL[short]
    if short.startswith("nano") and f"nanobeir-en/{config}" in SCHEMAS:  # NanoNQ-bm25 and its like have one form
        return SCHEMAS[f"nanobeir-en/{config}"]
    return SCHEMAS.get(f"{short}/{config}") or SCHEMAS.get(short)


def splits_of(name: str) -> tuple[str, ...]:
    """Splits of the set of this id; the usual three where it is not known."""
    owner, _, short = name.lower().rpartition("/")
    if owner == "huggingfaceh4" and short == "ultrafeedback_binarized":
        return ("train_prefs", "test_prefs", "train_sft", "test_sft")
    return SPLITS.get(short, DEFAULT_SPLITS)
