"""`python -m gpu_plan.commands.asked`: plans what a JSON document on stdin asks for; the plan is JSON on stdout.

How our own processes ask the planner: the document holds values alone, where a command line could hold options.
"""

import sys

from gpu_plan.planner.errors import PlanError


def main() -> int:
    """Exit codes and messages as of the main job."""
    from gpu_plan.commands.plan import run_parsed
    from gpu_plan.planner.options.given.document import asked_from_json
    from gpu_plan.planner.options.given.named import namespace, shown_words

    try:
        job, arguments = asked_from_json(sys.stdin.buffer.read())
        args = namespace(job)
        args.json = True
        return run_parsed(args, [*shown_words(job), "--json"], arguments)
    except PlanError as problem:
        print(f"plan: error: {problem}", file=sys.stderr)
        return int(problem.exit_code)


if __name__ == "__main__":
    sys.exit(main())
