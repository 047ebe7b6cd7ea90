"""Trains a small Llama within a limit of memory that is the same whatever the plan; says no word of checkpointing.

The limit is set once, in the first attempt, and counts model states too: which plan keeps it, the plan alone decides.
"""

import argparse
import resource
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset
from transformers import AutoConfig, AutoModelForCausalLM

from gpu_plan import current_plan


class Tokens(Dataset[dict[str, torch.Tensor]]):
    """Numbered samples of `length` tokens, made when they are asked for."""

    def __init__(self, length: int, vocabulary: int) -> None:
        self.length, self.vocabulary = length, vocabulary

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(index, index + self.length) % self.vocabulary
        return {"input_ids": tokens, "labels": tokens}


class Progress:
    """Steps done, saved with the state."""

    def __init__(self) -> None:
        self.step = 0

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step = state["step"]


def data_bytes() -> int:
    """What RLIMIT_DATA counts, of this process."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData"))
    return int(line.split()[1]) * 1024


def limit(count: int) -> None:
    """From here on an allocation beyond `count` bytes fails, as on a full device."""
    resource.setrlimit(resource.RLIMIT_DATA, (count, count))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--at", type=int, default=3, help="the first attempt is limited from this step on")
    parser.add_argument(
        "--budget",
        type=float,
        required=True,
        help="MiB beyond what the first attempt then holds; of its states where negative",
    )
    return parser.parse_args()


def main() -> None:
    args = parse()
    plan = current_plan()
    set_seed(0)
    accelerator = Accelerator()
    config = AutoConfig.from_pretrained(args.config)
    kept = Path(f"limit-{accelerator.process_index}")
    if plan.attempt > 1:
        limit(int(kept.read_text()))
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    loader = DataLoader(Tokens(args.length, config.vocab_size), batch_size=plan.micro_batch_size or 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    progress = Progress()
    accelerator.register_for_checkpointing(progress)
    if plan.resume_from:
        accelerator.load_state(str(plan.resume_from))
    saves = (plan.run_folder or Path()) / "checkpoints"
    for batch in loader:
        if progress.step + 1 == args.at and plan.attempt == 1:
            kept.write_text(str(data_bytes() + int(args.budget * 2**20)))
            limit(int(kept.read_text()))
        loss = model(**batch, use_cache=False).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        progress.step += 1
        accelerator.save_state(str(saves / f"step-{progress.step}"))
        if progress.step >= args.steps:
            break
    accelerator.end_training()


if __name__ == "__main__":
    main()
