"""A function in place of a script: what a process forked by Accelerate's notebook launchers runs as a rank."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from gpu_plan.executor.runner import failure
from gpu_plan.executor.runner.hooks.registry import install_hooks
from gpu_plan.executor.runner.options import read_options
from gpu_plan.executor.runner.recorder import Recorder


class ObservedFunction:
    """Calls `function` with the environment of a rank, and writes the rank's record.

    Accelerate's launchers give each process its RANK; everything else is in `environment`, which is put in place in
    the forked process only.
    """

    def __init__(self, function: Callable[..., object], environment: Mapping[str, str]) -> None:
        self.function = function
        self.environment = dict(environment)
        # torch's elastic agent names its entry point by these.
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self.__qualname__ = getattr(function, "__qualname__", self.__name__)

    def __call__(self, *arguments: Any) -> None:
        os.environ.update(self.environment)
        recorder = Recorder(read_options())
        install_hooks(recorder)
        recorder.write()
        try:
            self.function(*arguments)
        except BaseException as error:
            status, record = failure.describe(error)
            code = failure.exit_code(error)
            if status == "exit" and code == 0:
                recorder.finish("done", None, 0)
                return
            recorder.finish(status, record, code)
            raise
        recorder.finish("done", None, 0)
