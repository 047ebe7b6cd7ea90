"""What `plan` puts first in thirty cases against what practitioners run: cases/advice.md, judged by its own rule.

python -m benchmarks.told.advice [NUMBER ...] runs the cases of data/advice_cases.json one by one (half an hour), and
writes results/advice.json and advice.md. A case with `as_the_source` is asked a second time with the stack and the
loss that its source names; that answer is shown beside the first, which alone is judged. With --fresh first, second
or third it asks the questions of the page's eighth, ninth or tenth round (data/advice_fresh.json,
advice_second_fresh.json, advice_third_fresh.json), and writes results of the same name.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from typing import Any

from benchmarks.places import DATA, RESULTS

SPREADS = {
    "single": "single",
    "ddp": "replicated",
    "zero1": "replicated",
    "zero2": "replicated",
    "fsdp": "sharded",
    "fsdp1": "sharded",
    "hsdp": "sharded",
    "zero3": "sharded",
    "tp": "parallel",
    "device-map": "mapped",
    "fsdp_tp": "parallel",
}
"""How each strategy spreads the weights."""
CASES = {
    "": "advice_cases.json",
    "first": "advice_fresh.json",
    "second": "advice_second_fresh.json",
    "third": "advice_third_fresh.json",
}
"""Files of questions by the value of --fresh; without it what is published."""
GIB = 2**30


def asked(words: str, cache: str) -> dict[str, Any]:
    """What `plan` answers, as the page judges it; `cache` keeps traces between cases."""
    command = [sys.executable, "-m", "gpu_plan", *shlex.split(words), "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "GPU_PLAN_CACHE": cache}
    )
    if not done.stdout.strip():
        return {"exit": done.returncode, "error": done.stderr.strip().splitlines()[-1]}
    document = json.loads(done.stdout)
    plans = document["plans"]
    answer: dict[str, Any] = {"exit": done.returncode, "fits": bool(plans) and plans[0]["fits"]}
    if plans:
        answer |= _first(plans[0])
    answer["else"] = [one["change"] for one in document["alternatives"]]
    answer["why"] = document["ranking"]["why"]
    return answer


def _first(plan: dict[str, Any]) -> dict[str, Any]:
    strategy, memory, speed = plan["strategy"], plan["memory"], plan["speed"]
    alone = strategy["data_parallel"] * strategy["tensor_parallel"] == 1
    return {
        "spread": "single" if alone else SPREADS[strategy["name"]],
        "offloads": strategy["offload"] != "none",
        "strategy": strategy["name"],
        "offload": strategy["offload"],
        "micro_batch": strategy["micro_batch_size"],
        "checkpointing": strategy["checkpointing"],
        "gib": round(memory["device_used_bytes"] / GIB, 1),
        "of_gib": round(memory["capacity_bytes"] / GIB, 1),
        "tokens_per_second_per_gpu": None
        if speed["tokens_per_second_per_gpu"] is None
        else round(speed["tokens_per_second_per_gpu"]),
    }


def agrees(expected: dict[str, Any], answer: dict[str, Any]) -> bool:
    """Whether it fits as the source says, and is spread and kept off the host as the source has it."""
    if answer.get("fits") != expected["fits"]:
        return False
    if not expected["fits"]:
        return True
    return answer["spread"] in expected["spreads"] and answer["offloads"] == expected["offloads"]


def words(answer: dict[str, Any]) -> str:
    """An answer in one cell."""
    if "error" in answer:
        return str(answer["error"])
    if "strategy" not in answer:
        return f"OOM; else {', '.join(answer['else'][:3]) or 'nothing'}"
    offload = "" if answer["offload"] == "none" else f" + {answer['offload']} offload"
    verdict = "" if answer["fits"] else ", TIGHT"
    rate = answer["tokens_per_second_per_gpu"]
    return (
        f"{answer['strategy']}{offload}, micro batch {answer['micro_batch']}, {answer['checkpointing']} checkpointing,"
        f" {answer['gib']} of {answer['of_gib']} GiB{verdict}"
        + ("" if rate is None else f", {rate:,} tokens/s per GPU")
    )


def table(results: list[dict[str, Any]], *, fresh: str) -> str:
    """As Markdown."""
    agreeing = sum(result["agrees"] for result in results)
    asked_of = "questions of our own" if fresh else "published recipes"
    option = f" --fresh {fresh}" if fresh else ""
    lines = [
        f"# What practitioners run: {asked_of}",
        "",
        f"Made by `python -m benchmarks.told.advice{option}`. Cases and *agrees*: [the page](../cases/advice.md).",
        "",
        f"{agreeing} of {len(results)} agree.",
        "",
        "| # | ask | agrees | first | asked as the source runs it |",
        "|---|---|---|---|---|",
    ]
    for result in results:
        other = result.get("as_the_source")
        beside = "" if other is None else f"`{other['words']}`: {words(other['answer'])}"
        cells = (
            str(result["number"]),
            f"`{result['ask']}`",
            "yes" if result["agrees"] else "no",
            words(result["answer"]),
            beside,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("numbers", metavar="NUMBER", nargs="*", type=int, help="not all cases, but these")
    parser.add_argument("--fresh", choices=("first", "second", "third"), default="", help="the questions of our own")
    given = parser.parse_args()
    asked_of = DATA / CASES[given.fresh]
    kept = RESULTS / CASES[given.fresh].replace("_cases", "")
    results = {one["number"]: one for one in json.loads(kept.read_text())} if kept.exists() and given.numbers else {}
    cases = [case for case in json.loads(asked_of.read_text()) if not given.numbers or case["number"] in given.numbers]
    with tempfile.TemporaryDirectory(prefix="plan-advice-") as cache:
        for case in cases:
            results[case["number"]] = _answered(case, cache)
            ordered = [results[number] for number in sorted(results)]
            kept.write_text(json.dumps(ordered, indent=1) + "\n")
            kept.with_suffix(".md").write_text(table(ordered, fresh=given.fresh))


def _answered(case: dict[str, Any], cache: str) -> dict[str, Any]:
    """One case asked and judged, and told on the way."""
    answer = asked(case["ask"], cache)
    result = {"number": case["number"], "ask": case["ask"], "agrees": agrees(case, answer), "answer": answer}
    if "as_the_source" in case:
        added = case["as_the_source"]
        result["as_the_source"] = {"words": added, "answer": asked(f"{case['ask']} {added}", cache)}
    print(case["number"], "yes" if result["agrees"] else "NO", words(answer), flush=True)
    return result


if __name__ == "__main__":
    main()
