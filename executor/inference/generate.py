"""The built-in prompt runner: `plan MODEL --task infer ... --execute @generate -- --prompts FILE --output FILE`.

Loads the model as the plan says and runs a file of prompts through it, in order, to a file of results. What is done is
on the disk before the next batch begins: after a crash, or a kill, the run goes on where it was.
"""

import os
import sys
from collections.abc import Sequence

from gpu_plan.executor import names
from gpu_plan.executor.inference.options import Parser, add_options, request_of
from gpu_plan.executor.inference.start import begin
from gpu_plan.planner.errors import PlanError


def main(words: Sequence[str] | None = None) -> int:
    """Runs prompts under the plan of this process, or under `--plan-file`."""
    try:
        parser = Parser(prog="generate", description=__doc__, allow_abbrev=False)
        add_options(parser)
        request = request_of(parser.parse_args(words))
        session = begin(request, attempt=int(os.environ.get(names.ATTEMPT, "1")))
        if session is not None:
            session.run()
    except PlanError as error:
        print(f"generate: error: {error}", file=sys.stderr)
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
