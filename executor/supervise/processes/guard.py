"""A process of its own that outlives the supervisor by a moment: it kills what a killed supervisor left behind.

Started as `python -S -m gpu_plan.executor.supervise.processes.guard RUN_ID`; its standard input is a pipe whose other
end only the supervisor holds. The end of that pipe is the end of the supervisor, however it came, SIGKILL included.
"""

import os
import signal
import sys


def main(run_id: str) -> None:
    """Waits for the end of standard input, then kills every process of the run."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    from gpu_plan.executor.supervise.processes.strays import end_all

    end_all(run_id, 0.0)


if __name__ == "__main__":
    main(sys.argv[1])
