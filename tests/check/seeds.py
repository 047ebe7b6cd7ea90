"""Example projects, and real patches to them: regressions that must be caught, changes that must not be reported."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
PROJECTS = ("tinygpt", "finetune")
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """What a regression's report must name."""

    job: str
    said: str
    """Part of the message of a finding."""
    file: str
    """The finding's file."""
    text: str
    """What the line that is named says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One patch."""

    project: str
    name: str
    culprits: tuple[Culprit, ...] = ()

    @property
    def path(self) -> Path:
        return HERE / "changes" / self.project / f"{self.name}.patch"

    @property
    def jobs(self) -> tuple[str, ...]:
        """Jobs that it can reach: a factory's package knows nothing of the script. Empty: all of the project."""
        files = re.findall(r"^\+\+\+ b/(\S+)", self.path.read_text(encoding="utf-8"), re.MULTILINE)
        reaches = any(file.startswith(("gpt/", "pyproject.toml")) for file in files)
        return () if self.project != "tinygpt" or reaches else ("train",)

    def __str__(self) -> str:
        return f"{self.project}/{self.name}"


_TRAIN, _MODELING = "scripts/train.py", "src/finetune/modeling.py"
_EXPECTED: dict[str, tuple[Culprit, ...]] = {
    "tinygpt/regress-upcast-logits": (
        Culprit(job="train", said="converted to a wider type: `logits = self.head(self.norm(x)).float()`",
                file="gpt/model.py", text="logits = self.head(self.norm(x)).float()"),
    ),
    "tinygpt/regress-checkpointing": (
        Culprit(job="train", said="`x = checkpoint(block, x, use_reentrant=False)` is gone", file="gpt/layers.py",
                text="return self.drop(self.down(F.gelu(self.up(x))))"),
        Culprit(job="backbone", said="nothing is recomputed in backward any more", file="gpt/layers.py",
                text="return self.drop(self.down(F.gelu(self.up(x))))"),
    ),
    "tinygpt/regress-retained-graph": (
        Culprit(job="train", said="every step leaves memory behind", file="train.py",
                text="loss.backward(retain_graph=True)"),
    ),
    "tinygpt/regress-second-model": (
        Culprit(job="train", said="a second model stands beside the first", file="train.py",
                text="gain = initial(tokens, targets)[0] - loss.detach()"),
    ),
    "tinygpt/regress-idle-copy": (
        Culprit(job="train", said="a second model stands beside the first", file="train.py",
                text="average = copy.deepcopy(model)"),
    ),
    "tinygpt/regress-vocabulary-padding": (
        Culprit(job="train", said="the vocabulary grew, 32,000 -> 40,960", file="gpt/model.py",
                text="return F.cross_entropy(logits.view(-1, logits.shape[-1])"),
        Culprit(job="backbone", said="the vocabulary grew, 32,000 -> 40,960", file="gpt/model.py",
                text="return F.cross_entropy(logits.view(-1, logits.shape[-1])"),
    ),
    "finetune/regress-vocabulary-padding": (
        Culprit(job="sft", said="the vocabulary grew, 32,064 -> 32,768", file=_MODELING,
                text="model.resize_token_embeddings(config.vocab_size + len(MARKERS), pad_to_multiple_of=32768)"),
    ),
    "finetune/regress-optimizer-fp32": (
        Culprit(job="sft", said="optimizer state grew (adamw-8bit -> adamw)", file=_TRAIN,
                text="optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate)"),
    ),
    "finetune/regress-checkpointing": (
        Culprit(job="sft", said="nothing is recomputed in backward any more: `model.gradient_checkpointing_enable(",
                file=_TRAIN, text='outputs = model(input_ids=batch["input_ids"])'),
    ),
    "finetune/regress-second-model": (
        Culprit(job="sft", said="a second model stands beside the first", file=_TRAIN,
                text='expected = reference(input_ids=batch["input_ids"]).logits.log_softmax(-1)'),
    ),
    "finetune/regress-retained-graph": (
        Culprit(job="sft", said="every step leaves memory behind", file=_TRAIN,
                text='outputs = model(input_ids=batch["input_ids"])'),
    ),
    "finetune/regress-upcast-logits": (
        Culprit(job="sft", said="converted to a wider type: `exact = shifted.double()`",
                file="src/finetune/objective.py", text="exact = shifted.double()"),
    ),
    "finetune/regress-config-vocabulary": (
        Culprit(job="pretrain", said="the vocabulary grew, 32,000 -> 40,960", file="model/config.json",
                text='"vocab_size": 40960'),
        Culprit(job="sft", said="the vocabulary grew", file=_MODELING,
                text="model.resize_token_embeddings(config.vocab_size + len(MARKERS), pad_to_multiple_of=64)"),
    ),
    "finetune/regress-job-checkpointing": (
        Culprit(job="pretrain", said="nothing is recomputed in backward any more", file="pyproject.toml",
                text="[tool.plan.checks.pretrain]"),
    ),
    "finetune/regress-job-optimizer": (
        Culprit(job="pretrain", said="workload.optimizer: adamw-8bit -> adamw", file="pyproject.toml",
                text='optimizer = "adamw"'),
    ),
}  # fmt: skip


def changes() -> list[Change]:
    """Every patch; those named `regress-*` with what must be named."""
    found = []
    for project in PROJECTS:
        for path in sorted((HERE / "changes" / project).glob("*.patch")):
            key = f"{project}/{path.stem}"
            expected = _EXPECTED[key] if path.stem.startswith("regress-") else ()
            found.append(Change(project=project, name=path.stem, culprits=expected))
    return found


REGRESSIONS = [change for change in changes() if change.culprits]
HARMLESS = [change for change in changes() if not change.culprits]


def apply(root: Path, patch: str) -> None:
    """Applies a unified diff to the files below `root`; AssertionError where a line is not what the diff says."""
    target: Path | None = None
    old: list[str] = []
    new: list[str] = []
    at = 0

    def finish() -> None:
        if target is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("\n".join([*new, *old[at:]]), encoding="utf-8")

    for line in patch.splitlines():
        if line.startswith("--- "):
            finish()
            target = None
        elif line.startswith("+++ "):
            target = root / line.removeprefix("+++ b/")
            old = target.read_text(encoding="utf-8").split("\n") if target.exists() else [""]
            new, at = [], 0
        elif found := _HUNK.fullmatch(line):
            start = max(int(found[1]) - 1, 0)
            new += old[at:start]
            at = start
        elif line[:1] in (" ", "-"):
            assert old[at] == line[1:], f"{target}:{at + 1}: {old[at]!r} is not {line[1:]!r}"
            at += 1
            new += [line[1:]] if line[0] == " " else []
        elif line.startswith("+"):
            new.append(line[1:])
    finish()


def copy(project: str, to: Path) -> Path:
    """The project in a folder of its own."""
    shutil.copytree(HERE / "projects" / project, to, ignore=shutil.ignore_patterns("__pycache__", ".plan"))
    return to


def plan_check(root: Path, cache: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`plan check` in the project, as a shell would run it."""
    environment = {**os.environ, "GPU_PLAN_CACHE": str(cache), "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    return subprocess.run(
        [sys.executable, "-m", "gpu_plan", "check", *words],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )


def missing(change: Change, root: Path, report: dict[str, object], only: tuple[str, ...] = ()) -> list[str]:
    """Which of a regression's culprits its report does not name; `only`: jobs that were checked, else all were."""
    jobs = {job["name"]: job for job in report["jobs"]}  # type: ignore[attr-defined]
    wanted = [culprit for culprit in change.culprits if not only or culprit.job in only]
    assert wanted, f"{change} has nothing to name in {only}"
    return [f"{culprit.job}: {culprit.said}" for culprit in wanted if not _named(culprit, jobs, root)]


def _named(culprit: Culprit, jobs: dict[str, dict[str, object]], root: Path) -> bool:
    job = jobs[culprit.job]
    if job["status"] not in ("warn", "fail"):
        return False
    findings: list[dict[str, object]] = job["findings"]  # type: ignore[assignment]
    said = any(culprit.said in str(finding["message"]) for finding in findings)
    lines = (root / culprit.file).read_text(encoding="utf-8").splitlines()
    placed = any(
        finding["file"] == culprit.file and isinstance(line := finding["line"], int) and culprit.text in lines[line - 1]
        for finding in findings
        if finding["level"] in ("error", "warning")
    )
    return said and placed


def report_of(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    """The JSON document on stdout."""
    assert done.stdout, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found
