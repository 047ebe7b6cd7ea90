"""`python -m gpu_plan.executor.runner SCRIPT ARGS...`"""

import contextlib
import sys
from collections.abc import Sequence

from gpu_plan.executor.runner import failure
from gpu_plan.executor.runner.current import set_recorder
from gpu_plan.executor.runner.ending import (
    Departure,
    Termination,
    die_with_parent,
    dump_stacks_on_signal,
    write_elastic_error,
)
from gpu_plan.executor.runner.hooks.registry import install_hooks
from gpu_plan.executor.runner.options import read_options
from gpu_plan.executor.runner.recorder import Recorder
from gpu_plan.executor.runner.script import run_script
from gpu_plan.executor.runner.stop import Stop

RESERVE = 2**20
"""Bytes set aside, untouched, for saying what happened when there is no memory left."""


def main(arguments: Sequence[str]) -> int:
    """Runs the script and gives the exit code that python would end with."""
    if not arguments:
        print("usage: python -m gpu_plan.executor.runner SCRIPT [ARGUMENTS...]", file=sys.stderr)
        return 2
    die_with_parent()
    options = read_options()
    departure = Departure()
    departure.install()
    recorder = Recorder(options)
    set_recorder(recorder)
    dump_stacks_on_signal(options.folder, options.rank)
    with contextlib.suppress(ValueError, OSError):
        Termination(lambda: recorder.finish("interrupted", None, None)).install()
    install_hooks(recorder)
    recorder.write()
    code = _run(recorder, arguments)
    departure.code, departure.abrupt = code, _joined_by_gloo(recorder)
    return code


def _run(recorder: Recorder, arguments: Sequence[str]) -> int:
    reserve = bytearray(RESERVE)
    try:
        run_script(arguments[0], arguments[1:])
    except BaseException as error:
        reserve.clear()
        code = failure.exit_code(error)
        status, record = failure.describe(error)
        if status == "exit" and code == 0:
            recorder.left = failure.place_words(record)
            recorder.finish("done", None, 0)
        else:
            recorder.finish(status, record, code)
        write_elastic_error(error)
        _report(error)
        return code
    recorder.finish("done", None, 0)
    return 0


def _report(error: BaseException) -> None:
    """Prints what python would print."""
    if isinstance(error, Stop):
        print(f"plan: {error}", file=sys.stderr)
        return
    if isinstance(error, SystemExit):
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
        return
    frames = failure.user_frames(error.__traceback__)
    sys.excepthook(type(error), error.with_traceback(frames), frames)


def _joined_by_gloo(recorder: Recorder) -> bool:
    """Whether this is a CPU rank of several, whose gloo threads may abort a process that has finished well."""
    return recorder.memory.device == "cpu" and (recorder.options.cpu_ranks or recorder.options.world_size > 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
