"""Local files that a drawn script reads and its user would have: small, of the right shape, made where they miss."""

import gzip
import importlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gpu_plan.planner.capture.standin.downloads import text as prose

_WORDS = "the model reads this line and learns what comes after it because every word follows another one "
_TOKENS = 4_000_000


def _text(path: Path) -> None:
    path.write_text(_WORDS * 8000)


def _prose(path: Path) -> None:
    """All letters and marks, words as often as words come: what a tokenizer of the script's own is made of."""
    path.write_text(prose())


def _short(path: Path) -> None:
    """As much of it as a tokenizer in Python is trained on in seconds."""
    path.write_text(prose()[:60_000])


def _tokens(path: Path) -> None:
    (np.arange(_TOKENS) % 1000).astype(np.uint16).tofile(path)


def _npy(path: Path) -> None:
    np.save(path, (np.arange(_TOKENS) % 1000).astype(np.uint16))


def _h5(path: Path) -> None:
    """FareedKhan-dev/train-llm-from-scratch: one array of token ids; its user has h5py."""
    with importlib.import_module("h5py").File(path, "w") as file:
        file["tokens"] = np.arange(_TOKENS) % 1000


def _fineweb(path: Path) -> None:
    """KellerJordan/modded-nanogpt: a header of 256 int32 (magic, version, tokens), then uint16 tokens."""
    header = np.zeros(256, dtype=np.int32)
    tokens = 12_000_000
    header[:3] = 20240520, 1, tokens
    with path.open("wb") as file:
        file.write(header.tobytes())
        file.write((np.arange(tokens) % 1000).astype(np.uint16).tobytes())


def _enwik8(path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write((_WORDS.encode() * 1_000_000)[:95_000_000])


def _distill(path: Path) -> None:
    """huggingface/peft examples/cartridge_self_study: token ids of a teacher with its context and of a student."""
    rows = [
        {"teacher_input_ids": list(range(300)), "student_input_ids": list(range(100)), "ctx_len": 200}
        for _ in range(64)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _votes(path: Path) -> None:
    """rasbt/reasoning-from-scratch chF: pairs of a winner and a loser."""
    path.write_text(json.dumps([[f"model {number % 5}", f"model {(number + 1) % 5}"] for number in range(64)]))


def _cora(path: Path) -> None:
    """tkipf/pygcn: for each paper of cora.cites beside it its id, 1433 words it has or not, and one of 7 subjects."""
    papers = sorted(set(path.with_name("cora.cites").read_text().split()), key=int)
    words = " ".join(str(number % 2) for number in range(1433))
    path.write_text("".join(f"{paper} {words} subject{number % 7}\n" for number, paper in enumerate(papers)))


def _cites(path: Path) -> None:
    """The citations of cora, as many papers and pairs as it has."""
    papers, pairs = 2708, 5429
    path.write_text("".join(f"{number % papers}\t{(number * 7 + 1) % papers}\n" for number in range(pairs)))


def _ett(path: Path) -> None:
    """zhouhaoyi/ETDataset: hours with seven columns of figures."""
    hours = np.datetime64("2016-07-01T00:00:00") + np.arange(17_420).astype("timedelta64[h]")
    head = "date,HUFL,HULL,MUFL,MULL,LUFL,LULL,OT\n"
    rows = (f"{str(hour).replace('T', ' ')},{number % 24},1.5,2.5,{number % 7},4.5,5.5,{number % 5}\n"
            for number, hour in enumerate(hours))  # fmt: skip
    path.write_text(head + "".join(rows))


def _pt(path: Path) -> None:
    """Activated-AI/tinystories-quickstart: one flat tensor of token ids, documents ended by 0."""
    torch = importlib.import_module("torch")
    torch.save(torch.from_numpy((np.arange(_TOKENS) % 1000).astype(np.int16)), path)


def _spans(path: Path) -> None:
    """tgritsaev/tinystories: begin and end of each story in a flat array of token ids."""
    begin = np.arange(0, 2_000_000, 100)
    np.save(path, np.stack([begin, begin + 99], axis=1))


def _meta(values: dict[str, object]) -> Callable[[Path], None]:
    """What lies beside packed tokens."""

    def make(path: Path) -> None:
        path.write_text(json.dumps(values))

    return make


def _array(row: dict[str, object]) -> Callable[[Path], None]:
    """64 rows like this one, in one array."""

    def make(path: Path) -> None:
        path.write_text(json.dumps([row] * 64))

    return make


def _jsonl(row: dict[str, object]) -> Callable[[Path], None]:
    """64 rows like this one, one a line."""

    def make(path: Path) -> None:
        path.write_text("".join(json.dumps(row) + "\n" for _ in range(64)))

    return make


_PASSAGE = {"docid": "1", "title": "words", "text": _WORDS * 4}


def _csv(text: str, label: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        rows = "".join(f"{_WORDS * 30},{number % 2}\n" for number in range(128))
        path.write_text(f"{text},{label}\n{rows}")

    return make


MAKERS: dict[str, Callable[[Path], None]] = {
    "text": _text,
    "prose": _prose,
    "short prose": _short,
    "tokens": _tokens,
    "npy": _npy,
    "pt": _pt,
    "spans": _spans,
    "gpt2-meta": _meta({"tokenizer": "gpt2", "vocab_size": 50257, "dtype": "uint16"}),
    "8k-meta": _meta({"vocab_size": 8000}),
    "h5": _h5,
    "fineweb": _fineweb,
    "enwik8": _enwik8,
    "votes": _votes,
    "cites": _cites,
    "cora": _cora,
    "ett": _ett,
    "distill": _distill,
    "chats": _array({"messages": [{"role": "user", "content": _WORDS}, {"role": "assistant", "content": _WORDS}]}),
    "phrases": _jsonl({"sentence": _WORDS, "label": "neutral"}),
    "lines": _jsonl({"text": _WORDS * 4}),
    "sums": _jsonl({"question": "1 + 2", "answer": "3", "num_terms": 2, "num_digits": 1}),
    "passages": _jsonl(
        {"query_id": "1", "query": _WORDS, "positive_passages": [_PASSAGE], "negative_passages": [_PASSAGE] * 8}
    ),
    "preferences": _jsonl({"prompt": _WORDS, "chosen": _WORDS, "rejected": "no"}),
    "completions": _jsonl(
        {
            "prompt": [{"role": "user", "content": _WORDS}],
            "completion": [{"role": "assistant", "content": _WORDS}],
        }
    ),
    "judged": _jsonl(
        {
            "id": "1",
            "prompt": _WORDS,
            "a": {"text": _WORDS, "clauses": []},
            "b": {"text": "no", "clauses": []},
            "winner": "a",
        }
    ),
    "text-label": _csv("text", "label"),
    "Text-Label": _csv("Text", "Label"),
}


def make(folder: Path, files: dict[str, str]) -> None:
    """Makes what is missing below `folder`; tables always, for two scripts of one folder want other columns."""
    for name, kind in files.items():
        path = folder / name
        if not path.exists() or not path.stat().st_size or path.suffix == ".csv":
            path.parent.mkdir(parents=True, exist_ok=True)
            MAKERS[kind](path)
