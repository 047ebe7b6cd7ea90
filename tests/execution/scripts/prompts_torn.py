"""The prompt runner, killed in its first attempt in the midst of writing a line."""

import os
import signal
import sys

from gpu_plan.executor import names
from gpu_plan.executor.inference import generate
from gpu_plan.executor.inference.prompting.progress import Journal, Result

_append = Journal.append


def append(self: Journal, results: list[Result]) -> None:
    if os.environ[names.ATTEMPT] == "1" and any(result["index"] == 4 for result in results):
        self._file.write(b'{"index": 4, "output_ids": [1, 2')
        self._file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    _append(self, results)


if __name__ == "__main__":
    Journal.append = append  # type: ignore[method-assign, assignment]
    sys.exit(generate.main())
