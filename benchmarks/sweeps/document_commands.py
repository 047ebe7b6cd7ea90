"""Every command that README and docs show, run in one go, each as a process of its own, in a folder as they expect it.

python -m benchmarks.sweeps.document_commands writes document_commands.json and document_commands.md.
Launches are real, on CPU ranks; what they leave (a run, its checkpoint) is what later commands read. Placeholders are
filled in. What needs a terminal, GPUs or other hosts is run as well and has to say so in one line.
"""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.places import RESULTS
from tests.support.documents.commands import ROOT, Command, commands
from tests.support.documents.workspace import furnish, furnish_plans

_CODES = (0, 1)
"""1: nothing fits, or a regression, which examples may show."""
_ENOUGH = 900
REFUSED = {
    r"^plan explore": "needs a terminal",
    r"--gpus auto": "needs GPUs",
    r"--hosts": "needs the other host",
    r"slurm:gpu|--on slurm(?!.*--dry-run)": "needs SLURM",
}
"""Commands that this machine must refuse, in one line, with exit code 2, 3 or 4."""
FIRST = ("--execute examples/train.py",)
"""Whose run others read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One command and how it ended."""

    page: str
    line: str
    ran_as: str
    code: int
    verdict: str
    """`done`, `refused: REASON` as it has to be, or `WRONG: ...`."""


def run_all(folder: Path) -> Iterator[Ran]:
    """All of them in `folder`, those first whose run others read."""
    furnish(folder)
    with contextlib.redirect_stdout(io.StringIO()):
        furnish_plans(folder)
    _tokenizer(folder / "my-model")
    (folder / "in.txt").write_text("once\n")
    (folder / "in.jsonl").write_text('{"prompt": "once"}\n')
    ours = [command for command in commands() if command.words[0] == "plan"]
    for command in sorted(ours, key=lambda one: not any(word in one.line for word in FIRST)):
        ran = _run(command, folder)
        print(f"{ran.verdict:12.60} {ran.line[:100]}", file=sys.stderr, flush=True)
        yield ran


def _tokenizer(model: Path) -> None:
    """What texts need beside a config: one word of one's own."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({"[UNK]": 0, "once": 1}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(model / "tokenizer.json"))
    (model / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')


def _run(command: Command, folder: Path) -> Ran:
    words = list(_filled(command, folder))
    shown = f"plan {' '.join(words)}"
    environment = {**os.environ, "COLUMNS": "80", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(folder)}
    with tempfile.TemporaryFile("w+") as out:
        done = subprocess.run(
            [sys.executable, "-m", "gpu_plan", *words],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            timeout=_ENOUGH,
            check=False,
        )
        out.seek(0)
        said = out.read()
    if command.written_to:
        (folder / command.written_to).write_text(said)
    verdict = _verdict(command, done.returncode, done.stderr)
    return Ran(page=command.page, line=command.line, ran_as=shown, code=done.returncode, verdict=verdict)


def _saved(folder: Path) -> Path | None:
    """The checkpoint of the newest run that has one."""
    runs = sorted(
        (path for path in (folder / "runs").glob("*") if path.is_dir()), key=lambda path: path.stat().st_mtime
    )
    return next((path for run in reversed(runs) for path in sorted(run.glob("checkpoints/*"))), None)


def _with_checkpoint(folder: Path) -> Path | None:
    """A run's checkpoint, which another strategy can read; made where no command has left one."""
    if _saved(folder) is None:
        words = ["--execute", "examples/train.py", "--gpus", "2xcpu", "--strategy", "zero2", "--quiet"]
        words += ["--", "--steps", "8", "--save_steps", "8"]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([sys.executable, "-m", "gpu_plan", *words], cwd=folder, timeout=_ENOUGH, check=False, **quiet)
    return _saved(folder)


def _filled(command: Command, folder: Path) -> Iterator[str]:
    """The command's words for this folder: placeholders filled in, files that an earlier page wrote replaced."""
    words = list(command.words[1:])
    for index, word in enumerate(words):
        if word == "MODEL":
            words[index] = "my-model"
        elif word.startswith("runs/ID") and (saved := _with_checkpoint(folder)) is not None:
            words[index] = str(saved.relative_to(folder))
    if "MODEL" in command.words and "@generate" in words:
        words.append("--random-weights")  # a config alone stands in for the model
    writes = any(word in words for word in ("-o", "--save", "--snapshot", "--plot", "--output")) and words[0] != "diff"
    if writes and "--force" not in words and "--resume" not in words:
        words.insert(words.index("--") if "--" in words and "--output" not in words else len(words), "--force")
    yield from words


def _verdict(command: Command, code: int, stderr: str) -> str:
    last = (stderr.strip().splitlines() or ["nothing on stderr"])[-1][:160]
    if "Traceback" in stderr and "--execute" not in command.line:
        return f"WRONG: a traceback, {last}"
    for pattern, reason in REFUSED.items():
        if re.search(pattern, command.line):
            refused = code in (2, 3, 4) and last.startswith("plan: error: ")
            too_small = code == 1 and "--gpus auto" in command.line  # planned for this machine's own memory
            return f"refused: {reason}" if refused or too_small else f"WRONG: {code}, {last}"
    return "done" if code in _CODES else f"WRONG: {code}, {last}"


def page(found: list[Ran]) -> str:
    """As Markdown."""
    done = sum(ran.verdict == "done" for ran in found)
    refused = sum(ran.verdict.startswith("refused") for ran in found)
    lines = [
        "# Commands of README and docs",
        "",
        "Made by `python -m benchmarks.sweeps.document_commands`: every `plan` command that a page shows, run.",
        "",
        f"{len(found)} commands: {done} done, {refused} refused as this machine must,"
        f" {len(found) - done - refused} wrong.",
        "",
        "| page | command | exit code | |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {ran.page} | `{ran.line.replace('|', chr(92) + '|')}` | {ran.code} | {ran.verdict} |" for ran in found
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Runs all of them; 1 where one went wrong."""
    with tempfile.TemporaryDirectory(prefix="plan-documents-") as name:
        folder = Path(name)
        os.environ["GPU_PLAN_CACHE"] = str(folder / ".cache")
        os.chdir(folder)
        found = list(run_all(folder))
        os.chdir(ROOT)
    text = json.dumps([asdict(ran) for ran in found], indent=1, ensure_ascii=False).replace(name, "FOLDER")
    (RESULTS / "document_commands.json").write_text(text + "\n")
    (RESULTS / "document_commands.md").write_text(page(found).replace(name, "FOLDER"))
    print(page(found).splitlines()[4])
    return 1 if any(ran.verdict.startswith("WRONG") for ran in found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
