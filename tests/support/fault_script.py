"""A training script that goes wrong on demand: the rank, step and attempt of its fault are arguments.

A plain Accelerate loop over numbered samples; a checkpoint holds the step, so that a resumed attempt goes on counting.
"""

import argparse
import os
import resource
import signal
import sys
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset

from gpu_plan import current_plan

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.support.fault_model import WideNet
from tests.support.flips import flip as flip_bit


class Samples(Dataset[torch.Tensor]):
    """Numbered samples, made when they are asked for."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full(self.shape, index / 4096)


class Progress:
    """Steps done, saved with the state."""

    def __init__(self) -> None:
        self.step = 0

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step = state["step"]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--save-every", type=int, default=0)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds of sleep in every step")
    parser.add_argument("--fault", default="none")
    parser.add_argument("--at", type=int, default=3)
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--attempts", type=int, default=1, help="the fault happens in so many attempts")
    parser.add_argument("--budget", type=float, default=0.0, help="MiB that each rank may take beyond what it has")
    parser.add_argument("--batch", type=int, default=0, help="0: the plan's")
    parser.add_argument("--cgroup", default="", help="folder of a control group with little memory")
    parser.add_argument("--saves", default="", help="folder for checkpoints")
    parser.add_argument("--batches", default="", help="file to which rank 0 adds a line for each attempt")
    return parser.parse_args()


def fault(kind: str) -> None:
    """Ends or stops this rank for real."""
    if kind == "exception":
        raise ValueError("a bad sample")
    if kind == "deaf-peer":
        time.sleep(2)
        raise ValueError("a bad sample")
    if kind == "exit":
        sys.exit(3)
    if kind == "exit0":
        sys.exit(0)
    if kind == "_exit0":
        os._exit(0)
    if kind == "abort":
        os.abort()
    if kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "term":
        os.kill(os.getpid(), signal.SIGTERM)
    if kind == "hang":
        time.sleep(3600)
    if kind == "spin":
        while True:
            pass
    if kind == "child" and os.fork() == 0:
        # In a session of its own, deaf to SIGTERM: what a data tool may leave behind.
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(3600)


def corrupt(kind: str, saves: Path) -> None:
    """Cuts a file of the newest checkpoint, or flips one bit of it, then dies."""
    if kind in ("corrupt", "flip"):
        newest = max(saves.glob("step-*"), key=lambda path: int(path.name.removeprefix("step-")))
        while not (newest / "plan-checkpoint.json").is_file():  # its peer may still be saving
            time.sleep(0.01)
        weights = newest / "model.safetensors"
        middle = weights.stat().st_size // 2
        if kind == "corrupt":
            os.truncate(weights, middle)
        else:
            flip_bit(weights, middle, 0x40)
        os.kill(os.getpid(), signal.SIGKILL)


def limit_memory(mebibytes: float) -> None:
    """From here on an allocation beyond the budget fails, as on a full device."""
    data = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData"))
    limit = int(data.split()[1]) * 1024 + int(mebibytes * 2**20)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def go_wrong(args: argparse.Namespace, faulty: bool, attempt: int, saves: Path) -> None:
    """What happens in the step of the fault, in the rank of the fault and in its peers."""
    if faulty:
        if args.fault == "host-memory":
            Path(args.cgroup, "cgroup.procs").write_text(str(os.getpid()))
            hoard = [bytearray(os.urandom(2**20)) for _ in range(512)]
            raise SystemExit(f"{len(hoard)} MiB were given")
        corrupt(args.fault, saves)
        fault(args.fault)
    elif args.fault == "deaf-peer":
        time.sleep(3600)
    if args.fault == "memory" and attempt == 1:
        limit_memory(args.budget)


def main() -> None:
    args = parse()
    plan = current_plan()
    set_seed(0)
    accelerator = Accelerator()
    rank = accelerator.process_index
    faulty = rank == args.rank and plan.attempt <= args.attempts
    batch = args.batch or plan.micro_batch_size or 4
    model: torch.nn.Module = torch.nn.Sequential(torch.nn.Linear(args.width, args.width))  # FSDP2 wants a nested one
    if args.budget:
        model = WideNet()
    loader = DataLoader(Samples((4096, 64) if args.budget else (args.width,)), batch_size=batch)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3), loader)
    if args.fault == "deaf-peer" and not faulty:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    progress = Progress()
    accelerator.register_for_checkpointing(progress)
    if plan.resume_from:
        accelerator.load_state(str(plan.resume_from))
    if args.budget and (plan.attempt > 1 or args.fault != "memory"):
        limit_memory(args.budget)
    if args.batches and rank == 0:
        with open(args.batches, "a") as file:
            file.write(f"{batch} {accelerator.gradient_accumulation_steps}\n")
    print(f"begin rank {rank} at step {progress.step}", flush=True)
    saves = Path(args.saves) if args.saves else (plan.run_folder or Path()) / "checkpoints"
    while progress.step < args.steps:
        for x in loader:
            if progress.step + 1 == args.at:
                go_wrong(args, faulty, plan.attempt, saves)
            with accelerator.accumulate(model):
                loss = model(x).mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if not accelerator.sync_gradients:
                continue
            time.sleep(args.pause)
            progress.step += 1
            if args.save_every and progress.step % args.save_every == 0 and plan.run_folder:
                if faulty and args.fault == "torn" and progress.step == args.at:
                    os.kill(os.getpid(), signal.SIGKILL)  # its peer goes on saving
                accelerator.save_state(str(saves / f"step-{progress.step}"))
            if progress.step >= args.steps:
                break
    print(f"end rank {rank}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
