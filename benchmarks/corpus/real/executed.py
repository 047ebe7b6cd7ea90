"""Public scripts under `plan --execute` on two CPU ranks: what ran against what was planned from their capture.

    .venv/bin/python -m benchmarks.corpus.real.executed FOLDER [--packages FOLDER] [--scripts NAME...]

FOLDER holds the checkouts (see benchmarks.corpus.listing). TRL's own scripts are the installed ones; they train a tiny
model of a folder, with a tokenizer and data sets of a few lines laid beside it, so that nothing stands in. Compared are
the parameters, those trained, samples of a micro batch, accumulation, the strategy and the optimizer's class, on both
ranks, and whether the run ended well. A CPU rank has no allocator that tells a peak:
benchmarks.corpus.real.run compares peaks. Writes benchmarks/results/executed_scripts.json and .md.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.corpus.files import make
from benchmarks.corpus.real.cases import TINY
from benchmarks.corpus.real.kept import asked_for, keep, read_words
from benchmarks.corpus.scripts import shadows
from gpu_plan.planner.plan.files import load

RESULTS = Path(__file__).parents[2] / "results" / "executed_scripts.json"
_PLAN = Path(sys.executable).with_name("plan")
_WORDS = "the model reads this line and learns what comes after it because every word follows another one"
_ROWS = 64
_DATA = {
    "sft": {"text": _WORDS},
    "cpo": {"prompt": "the model", "chosen": " reads this line", "rejected": " follows another one"},
    "dpo": {"prompt": "the model", "chosen": " reads this line", "rejected": " follows another one"},
    "reward": {"chosen": "the model reads this line", "rejected": "the model follows another one"},
    "kto": {"prompt": "the model", "completion": " reads this line", "label": True},
    "reward_modeling": {"chosen": "the model reads this line", "rejected": "the model follows another one"},
    "gold": {
        "messages": [
            {"role": "user", "content": "the model reads this line"},
            {"role": "assistant", "content": "and learns what comes after it"},
        ]
    },
    "tpo": {
        "prompt": "the model",
        "reference": " reads each line",
        "chosen": " reads this line",
        "rejected": " follows another one",
    },
    "orpo": {"prompt": "the model", "chosen": " reads this line", "rejected": " follows another one"},
    "grpo": {"prompt": "the model reads this line"},
    "rloo": {"prompt": "the model reads this line"},
    "distillation": {"prompt": "the model reads this line"},
    "gkd": {
        "messages": [
            {"role": "user", "content": "the model reads this line"},
            {"role": "assistant", "content": "and learns what comes after it"},
        ]
    },
}
"""A row of the data set of each of TRL's scripts."""
_OF_TRL = ("orpo", "gkd", "tpo", "reward_modeling", "gold")
CASES = (
    "skorch-dev/skorch:examples/accelerate-multigpu/run-no-skorch.py",
    *(f"installed:trl/scripts/{name}.py" for name in ("sft", "dpo", "reward", "kto")),
    "Lightning-AI/pytorch-lightning:examples/pytorch/bug_report/bug_report_model.py",
    "huggingface/trl:examples/scripts/cpo.py",
    "lucidrains/x-transformers:train_entropy_tokenizer.py",
    "rasbt/LLMs-from-scratch:appendix-A/01_main-chapter-code/DDP-script-torchrun.py",
    "karpathy/nanoGPT:train.py",
    "installed:trl/scripts/grpo.py",
    "installed:trl/scripts/rloo.py",
    "installed:trl/scripts/distillation.py",
    *(f"huggingface/trl:examples/scripts/{name}.py" for name in ("orpo", "gkd", "tpo", "reward_modeling", "gold")),
    *(f"texttron/tevatron:src/tevatron/{name}/driver/train.py" for name in ("reranker", "retriever")),
    "PhoebusSi/Alpaca-CoT:peft/examples/conditional_generation/peft_lora_seq2seq_accelerate_fsdp.py",
    "shivangraval50/distributed-training-lab:train_ddp.py",
    "shivangraval50/distributed-training-lab:train_fsdp.py",
    "sdivyanshu90/build-your-own-distributed-training:train.py",
)
_ROLLED = ("--num_generations", "2", "--max_completion_length", "8")
_TEVATRON = (
    *("--model_name_or_path", "tiny", "--output_dir", "out", "--dataset_path", "pairs.jsonl", "--max_steps", "3"),
    *("--per_device_train_batch_size", "2", "--train_group_size", "4", "--use_cpu", "--report_to", "none"),
    *("--save_strategy", "no"),
)
_BESIDE = {
    "grpo": (*_ROLLED, "--reward_funcs", "get_soft_overlong_punishment"),
    "rloo": (*_ROLLED, "--reward_funcs", "get_soft_overlong_punishment"),
    "gold": ("--teacher_model_name_or_path", "tiny", "--max_completion_length", "8"),
    "gkd": ("--teacher_model_name_or_path", "tiny", "--max_new_tokens", "8"),
    "distillation": ("--teacher_model_name_or_path", "tiny", "--max_completion_length", "8"),
}
"""What some of TRL's scripts are given beside what all are."""
_OWN = {
    "texttron/tevatron:src/tevatron/reranker/driver/train.py": _TEVATRON,
    "texttron/tevatron:src/tevatron/retriever/driver/train.py": (*_TEVATRON, "--attn_implementation", "sdpa"),
    "lucidrains/x-transformers:train_entropy_tokenizer.py": ("--seq_len=64", "--batch_size=2", "--cpu=True"),
    "shivangraval50/distributed-training-lab:train_ddp.py": ("--steps", "3"),
    "shivangraval50/distributed-training-lab:train_fsdp.py": ("--steps", "3"),
    "sdivyanshu90/build-your-own-distributed-training:train.py": (
        *("--config", "config/test_tiny.yaml", "--backend", "gloo", "--max-steps", "8"),
    ),
    "karpathy/nanoGPT:train.py": (
        *("--device=cpu", "--backend=gloo", "--dtype=float32", "--compile=False", "--dataset=tokens", "--max_iters=3"),
        *("--n_layer=2", "--n_head=2", "--n_embd=64", "--block_size=64", "--batch_size=4", "--eval_iters=1"),
    ),
}
"""Words of the scripts that take some."""
_FILES = {
    "texttron/tevatron:src/tevatron/reranker/driver/train.py": {"pairs.jsonl": "passages"},
    "texttron/tevatron:src/tevatron/retriever/driver/train.py": {"pairs.jsonl": "passages"},
    "PhoebusSi/Alpaca-CoT:peft/examples/conditional_generation/peft_lora_seq2seq_accelerate_fsdp.py": {
        f"temp/data/FinancialPhraseBank-v1.0/financial_phrase_bank_{split}.jsonl": "phrases"
        for split in ("train", "val")
    },
    "lucidrains/x-transformers:train_entropy_tokenizer.py": {"data/enwik8.gz": "enwik8"},
    "karpathy/nanoGPT:train.py": {"data/tokens/train.bin": "tokens", "data/tokens/val.bin": "tokens"},
}
"""Local files that they read: see benchmarks.corpus.files."""


_MODELS = {"tiny": "Qwen/Qwen2.5-0.5B", "t5-base": "t5-base"}
"""Tiny models by their folders; a script that names a hub's model finds a folder of its name first."""


def lay(folder: Path) -> None:
    """Tiny models with their tokenizer, and the data sets."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    for home, name in _MODELS.items():
        kind, config = TINY[name]
        made = transformers.AutoConfig.for_model(**dict(config))
        getattr(transformers, kind)(made).save_pretrained(folder / home)
    # transformers 5 rebuilds a known family's tokenizer from its bytes' pairs, and words alone leave it empty.
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<unk>", "<s>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([_WORDS], trainer)
    whole = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="</s>"
    )
    whole.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    for home in _MODELS:
        whole.save_pretrained(folder / home)
    for name, row in _DATA.items():
        (folder / name).mkdir()
        rows = [{**row, "label": number % 2 == 0} if "label" in row else row for number in range(_ROWS)]
        (folder / name / "train.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))


def executed(case: str, folder: Path, packages: Path | None) -> dict[str, Any]:
    """One row."""
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        script, arguments, roots = _placed(case, folder, home)
        paths = os.pathsep.join(map(str, [*roots, *([packages] if packages else [])]))
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
        words = [str(_PLAN), "--execute", str(script), "--gpus", "2xcpu", "--", *arguments]
        ran = subprocess.run(words, cwd=home, env=environment, capture_output=True, text=True, check=False)
        said = [line for line in ran.stderr.splitlines() if line.startswith("plan: ")]
        row: dict[str, Any] = {"script": case, "code": ran.returncode, "last": said[-1][6:] if said else ""}
        found = sorted(home.glob("runs/*/plan.json"))
        return {**row, **_compared(found[-1].parent)} if found else row


def _placed(case: str, folder: Path, home: Path) -> tuple[Path, tuple[str, ...], list[Path]]:
    """The script, what it is given, and the roots from which it imports."""
    repository, _, path = case.partition(":")
    lay(home)
    if "trl" in repository.split("/")[-1] or repository == "installed":
        import trl

        name, installed = Path(path).stem, Path(trl.__file__).parents[1] / path
        words = (
            *("--model_name_or_path", str(home / "tiny"), "--dataset_name", str(home / name), "--max_steps", "3"),
            *("--output_dir", "out", "--per_device_train_batch_size", "2", "--report_to", "none"),
            *("--save_strategy", "no", "--use_cpu", *_BESIDE.get(name, ())),
        )
        return installed if repository == "installed" else folder / repository / path, words, []
    checkout = folder / repository
    for beside in (checkout / path).parent.glob("*.py"):
        shutil.copy(beside, home)
    if ((checkout / path).parent / "config").is_dir():
        shutil.copytree((checkout / path).parent / "config", home / "config")
    make(home, _FILES.get(case, {}))
    roots = [root for root in (checkout, checkout / "src") if not shadows(root)]
    return home / Path(path).name, _OWN.get(case, ()), roots


def _compared(run: Path) -> dict[str, Any]:
    """What the plan of a run says, and where each rank differs from it: planned, real."""
    plan = load(run / "plan.json")
    strategy = plan.plan.strategy
    planned = {
        "parameters": plan.called_parameters,
        "trainable_parameters": plan.model.trainable_parameters,
        "micro_batch_size": plan.rows_of_a_call,
        "gradient_accumulation_steps": strategy.loop_steps,
        "strategy": strategy.name,
    }
    ranks = [json.loads(path.read_text())["actual"] for path in sorted(run.glob("rank-*.json"))]
    differs = [{name: [value, rank.get(name)] for name, value in planned.items() if rank.get(name) != value}
               for rank in ranks]  # fmt: skip
    return {"planned": planned, "optimizer": plan.workload["optimizer"], "ranks": differs,
            "optimizers": [rank.get("optimizers") for rank in ranks]}  # fmt: skip


def as_markdown(rows: list[dict[str, Any]]) -> str:
    """The rows for people."""
    well = [row for row in rows if row["code"] == 0]
    equal = [row for row in well if row.get("ranks") == [{}, {}]]
    lines = [
        "# Public scripts under `plan --execute`, two CPU ranks",
        "",
        f"`python -m benchmarks.corpus.real.executed`: {len(rows)} scripts, {len(well)} of which ran to their end,"
        f" {len(equal)} of those as planned on both ranks.",
        "",
        "| script | exit code | planned | optimizer, planned and real | differs on the ranks | last line |",
        "|---|---:|---|---|---|---|",
    ]
    for row in rows:
        planned = ", ".join(f"{name} {value}" for name, value in row.get("planned", {}).items())
        real = ", ".join(sorted({name for names in row.get("optimizers", []) for name in names or []}))
        told = ["; ".join(f"{key} {a} against {b}" for key, (a, b) in rank.items()) or "nothing"
                for rank in row.get("ranks", [])]  # fmt: skip
        cells = (row["script"], row["code"], planned, f"{row.get('optimizer', '')}, {real}", " / ".join(told))
        lines.append(f"| {' | '.join(map(str, cells))} | {row['last'][:160].replace('|', '/')} |")
    return "\n".join(lines) + "\n"


def main(words: list[str]) -> int:
    """Runs them one after another; what is not named keeps its earlier row."""
    asked = read_words(words)
    for case in CASES:
        if not asked_for(asked.scripts, case):
            continue
        row = executed(case, asked.folder, asked.packages)
        print(row, flush=True)
        keep(row, RESULTS, as_markdown, by=("script",))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
