"""Public configurations of preference and reinforcement learning jobs: read right, read wrong, refused.

    .venv/bin/python -m benchmarks.told.preference_files FOLDER [DRAW]

FOLDER holds files of one commit of each repository as OWNER/NAME/PATH, and the commit in OWNER/NAME.commit. A file is
such a configuration by what its text or its place says (`job_of`), never by whether `plan from-config` can read it. Of
each repository the first few are drawn, its files shuffled by the draw's seed; nothing is replaced afterwards, and a
later draw takes none that an earlier one had. What each must give is read off its keys here, by lines that share
nothing with `plan`. Writes benchmarks/results/preference_files.md, or that of the draw.
"""

import contextlib
import io
import json
import random
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from benchmarks.places import DATA, RESULTS
from gpu_plan.cli import main as plan


class Draw(NamedTuple):
    """Which files are drawn."""

    seed: int
    most: int
    """Of a repository."""
    page: str
    before: tuple[str, ...] = ()
    """Pages of earlier draws, whose files are left out."""
    expected: str = ""
    """What each file says, read before it was run; null where it says no job that a plan has. A file of data/."""


DRAWS = {
    "first": Draw(20261123, 6, "preference_files.md"),
    "second": Draw(24112026, 4, "preference_files_second.md", ("preference_files.md",)),
    "third": Draw(20261124, 4, "preference_files_third.md", ("preference_files.md", "preference_files_second.md")),
    "fourth": Draw(
        20261125,
        2,
        "preference_files_fourth.md",
        ("preference_files.md", "preference_files_second.md", "preference_files_third.md"),
        "preferences_fourth.json",
    ),
    "fifth": Draw(
        20261127,
        3,
        "preference_files_fifth.md",
        (
            "preference_files.md",
            "preference_files_second.md",
            "preference_files_third.md",
            "preference_files_fourth.md",
        ),
        "preferences_fifth.json",
    ),
}
FOURTH = """
    BytedTsinghua-SIA/DAPO ContextualAI/HALOs EvolvingLMMs-Lab/open-r1-multimodal FreedomIntelligence/HuatuoGPT-o1
    GAIR-NLP/LIMR GAIR-NLP/ToRL LianjiaTech/BELLE NovaSky-AI/SkyThought Open-Reasoner-Zero/Open-Reasoner-Zero
    Osilly/Vision-R1 PKU-Alignment/align-anything RUCAIBox/R1-Searcher TIGER-AI-Lab/verl-tool TideDra/VL-RLHF
    corlin/finetuning-with-llama-factory dvlab-research/Step-DPO huggingface/smol-course huggingface/trl
    kingjameschan/gemma-math-sft-grpo knoveleng/open-rs lamm-mit/graph-preflexor-grpo microsoft/DeepSpeedExamples
    om-ai-lab/VLM-R1 sail-sg/understand-r1-zero sunblaze-ucb/Intuitor terrense/SFT_RLHF-DPO_GRPO- willccbb/verifiers
    xfactlab/orpo
"""
"""Repositories of the fourth draw, none of them drawn before; those that hold no such file give none."""
FIFTH = """
    ChenxinAn-fdu/POLARIS GAIR-NLP/DeepResearcher Liuziyu77/Visual-RFT ModalMinds/MM-EUREKA NovaSky-AI/SkyRL
    PRIME-RL/Entropy-Mechanism-of-RL PRIME-RL/TTRL RLHFlow/RLHF-Reward-Modeling RUCAIBox/SimpleDeepSearcher
    agentica-project/rllm eric-mitchell/direct-preference-optimization inclusionAI/AReaL liziniu/ReMax
    philschmid/deep-learning-pytorch-huggingface tulerfeng/Video-R1 uclaml/SPIN uclaml/SPPO yihedeng9/OpenVLThinker
"""
"""Of the fifth: those of twenty that are stored."""
PLANNED = {"dpo", "ipo", "kto", "orpo", "grpo", "gdpo", "rloo", "reward"}
_AS = {"ipo": "dpo", "gdpo": "grpo", "rm": "reward", "gae": "ppo"}
_PLACES = ("simpo", "orpo", "dpo", "kto", "grpo", "rloo", "ppo", "reward")
_KEYS = {"micro-batch": "per_device_train_batch_size", "grad-accum": "gradient_accumulation_steps"}
_AXOLOTL = {"micro-batch": "micro_batch_size", "grad-accum": "gradient_accumulation_steps"}


def job_of(path: str, text: str) -> str | None:
    """What a file trains by: its own word for it, else its place's; None where it is no such job."""
    for sign in (r"^rl:\s*", r"^stage:\s*", r"^rlhf_type:\s*", r"--rlhf_type\s+", r"--stage\s+", r"adv_estimator=\s*"):
        found = re.search(rf"{sign}['\"]?(\w+)", text, re.M)
        if found and found[1].lower() not in ("sft", "pt", "null", "none", "false"):
            return found[1].lower()
    if re.search(r"^reward_model:\s*true", text, re.M):
        return "reward"
    if not re.search(r"learning_rate|lr:|train_batch_size|openrlhf\.cli|algorithm:", text):
        return None
    name = path.lower()
    return next((word for word in _PLACES if re.search(rf"(^|[/_.-]){word}([/_.-]|$)", name)), None)


def drawn(folder: Path, draw: Draw) -> list[tuple[str, str, str]]:
    """Repository, path and job of each drawn file."""
    found = []
    before = "".join((RESULTS / page).read_text() for page in draw.before)
    for commit in sorted(folder.glob("*/*.commit")):
        root = commit.with_suffix("")
        repository = f"{root.parent.name}/{root.name}"
        own = []
        for path in sorted(root.rglob("*")):
            place = str(path.relative_to(root))
            if path.suffix not in (".yaml", ".yml", ".sh", ".json") or not path.is_file() or "test" in place:
                continue
            job = job_of(place, path.read_text(errors="replace"))
            if job is not None and f"| {repository} | {place} |" not in before:
                own.append((repository, place, job))
        random.Random(draw.seed).shuffle(own)
        found += own[: draw.most]
    return found


def told(folder: Path, repository: str, place: str) -> tuple[str, dict[str, Any]]:
    """What `plan from-config` said in one line, and what it read; nothing where it refused.

    ValueError where it ended otherwise.
    """
    path = folder / repository / place
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = plan(["from-config", str(path), "--json", "--gpus", "8xH100"])
    error = err.getvalue().strip().splitlines()
    said = error[-1].removeprefix("plan: error: ").replace(f"{folder}/{repository}/", "") if error else ""
    if code not in (0, 2, 3) or "Traceback" in err.getvalue():
        raise ValueError(f"code {code}: {said}")
    return said, {} if code else json.loads(out.getvalue())


def readings(draw: Draw) -> dict[str, dict[str, Any]]:
    """What each file of a draw says, by repository and path."""
    found: dict[str, dict[str, Any]] = json.loads((DATA / draw.expected).read_text())
    return found


def expected(folder: Path, repository: str, place: str, wanted: Any) -> tuple[str, str]:
    """How a file ended, by what was read off it before it was run."""
    try:
        said, found = told(folder, repository, place)
    except ValueError as error:
        return "wrong", str(error)
    if not found:
        return "refused", said
    if wanted is None:
        return "wrong", "read, and it says no job that a plan has"
    has = _of_job(found) if found["kind"] == "job" else found["options"]
    flaws = [f"{key} is {has.get(key)}, not {value}" for key, value in wanted.items() if _differ(has.get(key), value)]
    shown = f"a job document: {has['models']}" if found["kind"] == "job" else f"--recipe {has['recipe']}"
    return ("wrong", "; ".join(flaws)) if flaws else ("right", shown)


def _differ(has: Any, wanted: Any) -> bool:
    return str(has) != str(wanted) and not (wanted in (1, "none") and has is None)


def _of_job(found: dict[str, Any]) -> dict[str, Any]:
    """What a document says, by the words of the expectations."""
    job = found["job"]
    first, engine = next(iter(job["models"].values())), job["models"].get("engine", {})
    update = next(one for one in job["phases"] if one["does"] == "train" and one["models"][0] != "critic")
    return {
        **first,
        "models": " ".join(job["models"]),
        "rows": update.get("micro_batch"),
        "tokens": update.get("max_tokens"),
        "share": engine.get("share"),
        "ranks": engine.get("tensor_parallel"),
        "engine": engine.get("engine"),
        "eager": engine.get("eager"),
        "prompt": job["prompt_len"],
        "completion": job["completion_len"],
        "gpus": found["gpus"],
    }


def judged(folder: Path, repository: str, place: str, job: str) -> tuple[str, str]:
    """How one of the first three draws ended, and why."""
    path = folder / repository / place
    try:
        said, found = told(folder, repository, place)
    except ValueError as error:
        return "wrong", str(error)
    if not found:
        return "refused", said
    if found["kind"] == "job":
        wrong = list(_job_flaws(found["job"], path.read_text()))
        models = ", ".join(found["job"]["models"])
        return ("wrong", "; ".join(wrong)) if wrong else ("right", f"a job document: {models}")
    table = _line(path.read_text()) if path.suffix == ".sh" else yaml.safe_load(path.read_text())
    if isinstance(table.get("training"), dict):  # Oumi's words for the trainer stand in a table
        table = {**table["training"], **(table["training"].get("grpo") or {})}
    flaws = list(_flaws(found["options"], table, job))
    return ("wrong", "; ".join(flaws)) if flaws else ("right", f"--recipe {found['options']['recipe']}")


def _line(text: str) -> dict[str, str]:
    """Options of a command whose values stand in it."""
    said = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    found = dict(re.findall(r"--(\w+)[ =]+([^\s\\]+)", said))
    return {name: value for name, value in found.items() if "$" not in value}


def _flaws(options: dict[str, Any], table: dict[str, Any], job: str) -> Any:
    pure = str(table.get("cpo_alpha", 1.0)) in ("0", "0.0") or "gamma_beta_ratio" in table or "pref_loss" in table
    wanted: dict[str, Any] = {"recipe": "cpo" if job == "simpo" and not pure else _AS.get(job, job)}
    keys = _AXOLOTL if "base_model" in table else _KEYS
    wanted |= {name: table[key] for name, key in keys.items() if key in table and wanted["recipe"] != "grpo"}
    for name, key in (("generations", "num_generations"), ("completion-len", "max_completion_length")):
        if key in table:
            wanted[name] = table[key]
    rank = table.get("lora_r") or table.get("lora_rank")
    if rank and (
        table.get("tuner_type") == "lora"
        or table.get("use_peft")
        or table.get("adapter")
        or table.get("finetuning_type") == "lora"
    ):
        wanted["lora-rank"] = rank
    for name, value in wanted.items():
        if str(options.get(name)) != str(value) and not (value == 1 and name not in options):
            yield f"{name} is {options.get(name)}, not {value}"


_LINES = (
    (r"--(?:actor|model)\.model_name_or_path (\S+)", "model"),
    (r"actor_rollout_ref\.model\.path=([\w./-]+)", "model"),
    (r"^model_name_or_path: (\S+)", "model"),
    (r"^per_device_train_batch_size: (\d+)", "rows"),
    (r"--ds\.zero_stage (\d)", "strategy"),
    (r"--train\.micro_batch_size (\d+)", "rows"),
    (r"actor\.ppo_micro_batch_size_per_gpu=(\d+)", "rows"),
    (r"(?:vllm|rollout)\.gpu_memory_utilization[= ]([\d.]+)", "share"),
    (r"(?:tensor_model_parallel_size=|vllm\.tensor_parallel_size )(\d+)", "ranks"),
    (r"(?:--reward\.model_name_or_path )(\S+)", "reward"),
)


def _job_flaws(job: dict[str, Any], text: str) -> Any:
    """What a document of OpenRLHF or verl must say by lines of its command that are not comments."""
    said = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    first, engine = next(iter(job["models"].values())), job["models"].get("engine", {})
    update = next(one for one in job["phases"] if one["does"] == "train" and one["models"][0] != "critic")
    pairs = 2 if "train_dpo" in text or "per_device_train_batch_size" in text else 1
    has = {
        "model": first["model"],
        "strategy": first.get("strategy", "").removeprefix("zero"),
        "rows": str(update["micro_batch"] // pairs) if "micro_batch" in update else None,
        "share": f"{engine.get('share')}",
        "ranks": f"{engine.get('tensor_parallel')}",
        # Beside the actor only where all share its devices.
        "reward": job["models"].get("reward", {}).get("model") if "colocate_all" in said else None,
    }
    for sign, name in _LINES:
        found = re.search(sign, said, re.M)
        wanted = None if found is None else found[1]
        if wanted is not None and has[name] is not None and has[name] != wanted:
            yield f"{name} is {has[name]}, not {wanted}"
    if "adv_estimator=gae" in said and "critic" not in job["models"]:
        yield "no critic"


def _told(draw: Draw) -> str:
    """How many files of a draw say a job that a plan has, where that was read before."""
    if not draw.expected:
        return ""
    wanted = [said for own in readings(draw).values() for said in own.values()]
    return f"; {sum(said is not None for said in wanted)} of them say a job that a plan has, read before the first run"


def main(folder: Path, name: str = "first") -> None:
    """Judges all and writes the table."""
    draw = DRAWS[name]
    files = drawn(folder, draw)
    if draw.expected:
        wanted = readings(draw)
        rows = [(*one, *expected(folder, *one[:2], wanted[one[0]][one[1]])) for one in files]
    else:
        rows = [(*one, *judged(folder, *one)) for one in files]
    count = Counter(row[3] for row in rows)
    commits = {path.stem: path.read_text().strip()[:10] for path in sorted(folder.glob("*/*.commit"))}
    lines = [
        "# Configurations of preference and reinforcement learning jobs",
        "",
        f"{len(rows)} files of {len({row[0] for row in rows})} public repositories, drawn by"
        f" `benchmarks/told/preference_files.py` (seed {draw.seed}): {count['right']} right, {count['wrong']} wrong,"
        f" {count['refused']} refused{_told(draw)}."
        f" Commits: {', '.join(f'{name} {commit}' for name, commit in commits.items())}.",
        "",
        "| repository | file | its job | end | what was said |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {row[0]} | {row[1]} | {row[2]} | {row[3]} | {row[4].replace('|', '/')[:240]} |" for row in rows]
    (RESULTS / draw.page).write_text("\n".join(lines) + "\n")
    print(dict(count))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), *sys.argv[2:])
