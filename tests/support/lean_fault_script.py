"""A bare torch loop under DDP and gloo that goes wrong on demand: what starts quickest, for faults of many kinds.

Without Accelerate and without checkpoints; `fault_script.py` has both. `--when` says where the fault strikes: `import`
(before torch), `start` (before the first step), `step`, `backward` (in a gradient's hook), `loader` (in a worker of the
DataLoader), `save`, `end` (after the last step).
"""

import argparse
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

SIGNALS = ("SIGABRT", "SIGBUS", "SIGSEGV", "SIGKILL", "SIGSTOP", "SIGTERM", "SIGFPE", "SIGILL", "SIGINT", "SIGHUP")
MARK = "FAULT_MARK"
"""Its value stands in the arguments of what is left behind, so that it is found without environment or session."""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds of sleep in every step")
    parser.add_argument("--fault", default="none")
    parser.add_argument("--when", default="step")
    parser.add_argument("--at", type=int, default=3)
    parser.add_argument("--rank", default="1", help="a number, or `all`")
    return parser.parse_args()


def leave_behind(kind: str, shell: str) -> None:
    """A shell line that starts what outlives its parents; `SLEEP` in it sleeps."""
    mark = f"{os.environ.get(MARK, '0')}{list(CHILDREN).index(kind)}"
    subprocess.Popen(("/bin/sh", "-c", shell.replace("SLEEP", f"sleep 86400.{mark}"))).wait()


CHILDREN = {
    "child-session": "setsid SLEEP &",
    "child-bare": "env -i SLEEP &",
    "child-escaped": "env -i setsid sh -c 'SLEEP & exit' &",
    "child-deaf": "env -i setsid sh -c 'trap \"\" TERM HUP INT; SLEEP; SLEEP' &",
    "child-many": "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do env -i setsid SLEEP & done",
    "child-deep": "env -i setsid sh -c 'setsid sh -c \"env -i setsid SLEEP & exit\" & exit' &",
    "child-daemon": "GPU_PLAN_DAEMON=1 setsid SLEEP &",
    "child-stopped": "env -i setsid sh -c 'SLEEP & kill -STOP $!' &",
}


def strike(kind: str) -> None:
    """Ends or stops this rank for real, or leaves something behind. Several kinds with commas between them."""
    if "," in kind:
        for one in kind.split(","):
            strike(one)
    elif kind in SIGNALS:
        os.kill(os.getpid(), getattr(signal, kind))
        time.sleep(1.0)  # delivered to whichever thread; those that end a process do it now
    elif kind in CHILDREN:
        leave_behind(kind, CHILDREN[kind])
    elif kind.startswith("exit:"):
        sys.exit(int(kind[5:]))
    elif kind.startswith("_exit:"):
        os._exit(int(kind[6:]))
    else:
        OTHERS[kind]()


def words() -> None:
    sys.exit("the data is bad")


def fail() -> None:
    raise ValueError("a bad sample")


def abort() -> None:
    os.abort()


def recurse() -> None:
    recurse()


def hoard() -> None:
    limit = int(Path("/proc/self/statm").read_text().split()[0]) * 4096 + 64 * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    raise SystemExit(len([bytearray(2**24) for _ in range(64)]))


def hang() -> None:
    time.sleep(86400)


def stop_and_go() -> None:
    subprocess.Popen(("/bin/sh", "-c", f"sleep 3; kill -CONT {os.getpid()}"))
    os.kill(os.getpid(), signal.SIGSTOP)


def thread_fails() -> None:
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()


def thread_exits() -> None:
    threading.Thread(target=lambda: os._exit(5)).start()
    time.sleep(30)


def zombies() -> None:
    for _ in range(10):
        if os.fork() == 0:
            if os.fork() == 0:
                os._exit(0)  # its parent never asks for it
            time.sleep(86400)


def close_output() -> None:
    for number in (1, 2):
        os.close(number)
        os.open(os.devnull, os.O_WRONLY)
    sys.stdout.close()


def close_and_fail() -> None:
    os.close(2)
    os.close(1)
    fail()


def deaf() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def lose_directory() -> None:
    lost = Path(f"lost-{os.getpid()}").absolute()
    lost.mkdir()
    os.chdir(lost)
    lost.rmdir()


def deadlock() -> None:
    """Each rank waits for a message of the other: a send was forgotten."""
    import torch
    import torch.distributed as dist

    dist.recv(torch.zeros(1), src=1 - dist.get_rank())


def keyboard() -> None:
    raise KeyboardInterrupt


OTHERS = {
    "words": words, "exception": fail, "abort": abort, "recursion": recurse, "memory": hoard, "hang": hang,
    "stop-cont": stop_and_go, "thread-exception": thread_fails, "thread-exit": thread_exits, "zombies": zombies,
    "close-output": close_output, "close-and-fail": close_and_fail, "deaf": deaf, "no-directory": lose_directory,
    "deadlock": deadlock, "keyboard": keyboard,
}  # fmt: skip


def main() -> None:
    args = parse()
    mine = args.rank in ("all", os.environ.get("RANK", "0"))
    if mine and args.fault != "none" and args.when == "import":
        strike(args.fault)
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, IterableDataset

    class Samples(IterableDataset[torch.Tensor]):
        def __iter__(self) -> Iterator[torch.Tensor]:
            for index in range(10**6):
                if mine and args.when == "loader" and index == args.at:
                    strike(args.fault)
                yield torch.full((16,), index / 4096)

    model: torch.nn.Module = torch.nn.Linear(16, 16)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("gloo")
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    if mine and args.when == "start":
        strike(args.fault)
    print(f"begin rank {os.environ.get('RANK', '0')}", flush=True)
    loader = iter(DataLoader(Samples(), batch_size=4, num_workers=1 if args.when == "loader" else 0))
    for step in range(1, args.steps + 1):
        strikes = mine and step == args.at
        if strikes and args.when == "step" and args.fault != "none":
            strike(args.fault)
        loss = model(next(loader)).mean()
        if strikes and args.when == "backward":
            loss.register_hook(lambda gradient: strike(args.fault))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(args.pause)
        if strikes and args.when == "save":
            with open("weights.pt", "wb") as file:
                torch.save(model.state_dict(), file)
                strike(args.fault)
    if mine and args.when == "end":
        strike(args.fault)
    print("end", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
