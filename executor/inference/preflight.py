"""Everything that an inference run would stumble over, looked at before there is one, in a process of its own.

The supervisor stays without torch, whose libraries would take RAM that offloaded weights need. The child reads one
JSON object from stdin and writes one to stdout.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from gpu_plan.executor.inference.job import inference_job
from gpu_plan.planner import errors
from gpu_plan.planner.errors import PlanError, PreflightError
from gpu_plan.planner.own_python import own_command, own_environment
from gpu_plan.planner.plan.saved import SavedPlan, saved_from_json, saved_to_json

_KINDS: dict[str, type[PlanError]] = {
    kind.__name__: kind
    for kind in (errors.UsageError, errors.InputError, errors.UnreachableError, errors.PreflightError)
}


def preflight(saved: SavedPlan, arguments: Sequence[str] | None, directory: Path) -> None:
    """Raises what a run of the built-in runner with these words would end with; a PlanError of one line.

    `arguments` None: of a script of the user's own only the plan, the checkpoint and the machine are looked at.
    `directory`: where relative paths begin, and whose disk would hold what is offloaded.
    """
    question = json.dumps({"plan": saved_to_json(saved), "arguments": arguments, "directory": str(directory)})
    on_cpu = {"CUDA_VISIBLE_DEVICES": ""} if inference_job(saved).on_cpu else {}
    answer = subprocess.run(
        own_command("gpu_plan.executor.inference.preflight"),
        input=question,
        capture_output=True,
        text=True,
        cwd=directory,
        env=own_environment({**os.environ, **on_cpu, "TRANSFORMERS_VERBOSITY": "error"}, directory=directory),
    )
    try:
        found = json.loads(answer.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        last = next((line for line in reversed(answer.stderr.splitlines()) if line.strip()), "no word")
        raise PreflightError(f"looking at the run ended with {answer.returncode}: {last[:300]}") from None
    if found:
        raise _KINDS.get(found["kind"], PreflightError)(found["error"])


def _answer(question: dict[str, object]) -> dict[str, str]:
    from gpu_plan.executor.inference.options import Parser, add_options, request_of
    from gpu_plan.executor.inference.start import adjusted, check_all, check_model

    job = inference_job(saved_from_json(str(question["plan"]), "the plan"))
    directory = Path(str(question["directory"]))
    words = question["arguments"]
    if not isinstance(words, list):
        check_model(job, directory)
        return {}
    parser = Parser(prog="@generate", allow_abbrev=False)
    add_options(parser)
    request = request_of(parser.parse_args([str(word) for word in words]))
    check_all(request, adjusted(job, request), request.offload_folder or directory)
    return {}


def main() -> int:
    """The child's side."""
    try:
        found = _answer(json.load(sys.stdin))
    except PlanError as error:
        found = {"kind": type(error).__name__, "error": str(error)}
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
