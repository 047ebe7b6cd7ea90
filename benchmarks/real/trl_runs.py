"""TRL's trainers run for real on a CPU, each against its capture: peak and end of backward, in bytes.

    .venv/bin/python -m benchmarks.real.trl_runs

The runs are those of tests/capture/test_recipe_jobs.py, of a Llama with two layers in fp32; they take half an hour of
one core. Writes benchmarks/results/trl_runs.md. The tests assert that both sides are equal; this shows the figures.
"""

import tempfile
from importlib import metadata, resources
from pathlib import Path

from benchmarks.places import RESULTS
from gpu_plan.planner.capture.parent import capture
from gpu_plan.planner.capture.request import CaptureRequest
from gpu_plan.planner.trace.storage import load
from tests.capture.test_recipe_jobs import CASES, CPU, LENGTHS, Case, tiny_model
from tests.support.replay_cpu import replayed
from tests.support.script_reference import real_run


def row(case: Case, model: str, folder: Path) -> tuple[str, int, int, int, int]:
    """The case, and real and planned bytes: peak, end of backward."""
    script = Path(str(resources.files("gpu_plan.planner.capture.recipes").joinpath(f"{case.recipe}.py")))
    folders = {"MODEL": model, "REWARDS": f"{model}/rewards"}
    words = ("--model", model, *LENGTHS, *(folders.get(word, word) for word in case.words))
    real = real_run(script, words, folder)
    request = CaptureRequest(
        script=str(script), arguments=words, working_directory=str(folder), device=CPU, seconds=1200.0
    )
    outcome, content = capture(request)
    assert outcome.facts is not None
    planned = replayed(load(content), outcome.facts.micro_batch)
    return str(case), real["peak"], planned.peak, real["backward_end"], planned.backward_end


def main() -> None:
    """Runs all and writes the table."""
    with tempfile.TemporaryDirectory() as made:
        model = tiny_model(Path(made) / "model")
        rows = []
        for number, case in enumerate(CASES):
            folder = Path(made) / str(number)
            folder.mkdir()
            rows.append(row(case, model, folder))
            print(*rows[-1], flush=True)
    equal = sum(peak == planned and end == planned_end for _, peak, planned, end, planned_end in rows)
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("trl", "transformers", "torch", "peft"))
    lines = [
        "# Real runs of TRL's trainers on a CPU",
        "",
        f"{len(rows)} runs, {equal} equal to the byte in both figures. {versions}; a Llama of two layers in fp32, two"
        " samples of 24 and 40 tokens (`benchmarks/real/trl_runs.py`). Bytes above what stood before the step.",
        "",
        "| recipe | peak, real | planned | end of backward, real | planned |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {name} | {' | '.join(f'{figure:,}' for figure in figures)} |" for name, *figures in rows]
    (RESULTS / "trl_runs.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
