"""Trains a causal language model with Accelerate, under `python`, `accelerate launch`, `torchrun` or `plan --execute`.

python examples/train.py --steps 20
plan --execute examples/train.py --gpus 2xcpu -- --steps 20
"""

import argparse
import shutil
from pathlib import Path

import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.utils import DataLoaderConfiguration, set_seed
from token_data import TINY_LLAMA, load_data, load_model
from torch.utils.data import DataLoader, Subset
from transformers import get_linear_schedule_with_warmup

try:
    from gpu_plan import current_plan
except ImportError:  # gpu-plan is not installed: the defaults below hold
    current_plan = None


class Progress:
    """How far the training has come; saved and loaded with every checkpoint."""

    def __init__(self) -> None:
        self.step = 0
        self.samples = 0

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step, "samples": self.samples}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step, self.samples = state["step"], state["samples"]


def parse_arguments() -> argparse.Namespace:
    plan = current_plan() if current_plan else None
    under_plan = plan is not None and plan.active
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--model", default=TINY_LLAMA, help="hub id or folder")
    parser.add_argument("--text", help="file to train on, instead of generated tokens")
    parser.add_argument("--samples", type=int, default=2048, help="how many generated sequences")
    parser.add_argument("--steps", type=int, default=20, help="optimizer steps")
    parser.add_argument("--batch_size", type=int, default=(under_plan and plan.micro_batch_size) or 4, help="per rank")
    parser.add_argument(
        "--gradient_accumulation_steps", type=int, default=(under_plan and plan.gradient_accumulation_steps) or 1
    )
    parser.add_argument("--seq_length", type=int, default=(under_plan and plan.sequence_length) or 128)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--max_grad_norm", type=float, default=1.0, help="0: gradients are not clipped")
    parser.add_argument("--warmup_steps", type=int, default=2)
    parser.add_argument("--optimizer", default=(under_plan and plan.optimizer) or "adamw")
    parser.add_argument("--dtype", default="bfloat16" if under_plan and plan.precision == "bf16" else "float32")
    parser.add_argument(
        "--checkpointing",
        choices=["none", "full"],
        default="full" if under_plan and plan.checkpointing == "full" else "none",
        help="activation checkpointing",
    )
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--output_dir", default=str(plan.run_folder) if under_plan else "output")
    parser.add_argument("--save_steps", type=int, default=0, help="0: never")
    parser.add_argument("--keep", type=int, default=2, help="checkpoints to keep")
    parser.add_argument("--resume_from_checkpoint", default=plan.resume_from if under_plan else None)
    parser.add_argument("--save_model", action="store_true", help="write the trained weights to OUTPUT_DIR/model")
    return parser.parse_args()


def make_optimizer(name: str, model: torch.nn.Module, lr: float) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=lr)
    if name == "adamw-8bit":
        import bitsandbytes

        return bitsandbytes.optim.AdamW8bit(model.parameters(), lr=lr)
    return torch.optim.AdamW(model.parameters(), lr=lr, fused=True if name == "adamw-fused" else None)


def save_checkpoint(accelerator: Accelerator, folder: Path, step: int, keep: int) -> None:
    accelerator.save_state(str(folder / f"step-{step}"))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        steps = sorted(int(path.name.removeprefix("step-")) for path in folder.glob("step-*"))
        for old in steps[:-keep]:
            shutil.rmtree(folder / f"step-{old}")


def make_model(args: argparse.Namespace) -> torch.nn.Module:
    model = load_model(args.model, getattr(torch, args.dtype))
    model.config.use_cache = False
    if args.checkpointing == "full":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def data_ranks(accelerator: Accelerator) -> int:
    """Ranks that see samples of their own: those that compute one copy of the model together see the same."""
    degrees = accelerator.parallelism_config
    return degrees.data_parallel_size if degrees is not None else accelerator.num_processes


def make_loader(args: argparse.Namespace, accelerator: Accelerator, vocabulary: int) -> DataLoader:
    data = load_data(
        args.text,
        model=args.model,
        vocabulary=vocabulary,
        samples=args.samples,
        length=args.seq_length,
        seed=args.seed,
    )
    # Whole global batches only: every epoch is a whole number of optimizer steps.
    micro_batch = args.batch_size * data_ranks(accelerator)
    global_batch = micro_batch * accelerator.gradient_accumulation_steps
    if len(data) < global_batch:
        raise SystemExit(f"{len(data)} samples do not fill one global batch of {global_batch}")
    data = Subset(data, range(len(data) // global_batch * global_batch))
    # A generator of its own: beginning to read in the middle of an epoch leaves dropout's random numbers alone.
    own = torch.Generator().manual_seed(args.seed)
    return DataLoader(data, batch_size=args.batch_size, shuffle=True, drop_last=True, generator=own)


def train(
    args: argparse.Namespace,
    accelerator: Accelerator,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: DataLoader,
    scheduler: torch.optim.lr_scheduler.LRScheduler,
    progress: Progress,
) -> None:
    """Optimizer steps until there are `args.steps`, from where `progress` stands."""
    samples = len(loader.dataset)
    micro_batch = samples // len(loader)  # of all ranks: whatever shares samples out has cut the loader
    model.train()
    loss_sum = torch.zeros((), device=accelerator.device)
    while progress.step < args.steps:
        epoch, position = divmod(progress.samples, samples)
        loader.set_epoch(epoch)
        for batch in skip_first_batches(loader, position // micro_batch) if position else loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                loss_sum += loss.detach()
                if accelerator.sync_gradients and args.max_grad_norm > 0:
                    accelerator.clip_grad_norm_(model.parameters(), args.max_grad_norm)
                optimizer.step()
                if accelerator.sync_gradients:
                    scheduler.step()
                optimizer.zero_grad()
            progress.samples += micro_batch
            if not accelerator.sync_gradients:
                continue
            progress.step += 1
            mean_loss = accelerator.reduce(loss_sum, "mean").item() / accelerator.gradient_accumulation_steps
            loss_sum.zero_()
            accelerator.print(f"step {progress.step}: loss {mean_loss:.6f}", flush=True)
            if args.save_steps and progress.step % args.save_steps == 0:
                save_checkpoint(accelerator, Path(args.output_dir, "checkpoints"), progress.step, args.keep)
            if progress.step == args.steps:
                break


def main() -> None:
    args = parse_arguments()
    # The schedule counts optimizer steps, whatever the number of ranks: then a checkpoint fits any number of them.
    accelerator = Accelerator(
        gradient_accumulation_steps=args.gradient_accumulation_steps,
        step_scheduler_with_optimizer=False,
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True, data_seed=args.seed),
    )
    set_seed(args.seed)

    model = make_model(args)
    loader = make_loader(args, accelerator, model.config.vocab_size)
    optimizer = make_optimizer(args.optimizer, model, args.lr)
    scheduler = get_linear_schedule_with_warmup(optimizer, args.warmup_steps, max(args.steps, args.warmup_steps + 1))
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    progress = Progress()
    accelerator.register_for_checkpointing(progress)
    if args.resume_from_checkpoint:
        accelerator.load_state(str(args.resume_from_checkpoint))
        accelerator.step = 0  # a checkpoint stands between two optimizer steps, also of another accumulation
        accelerator.print(f"resumed from {args.resume_from_checkpoint} after step {progress.step}")

    train(args, accelerator, model, optimizer, loader, scheduler, progress)
    if args.save_model:
        accelerator.wait_for_everyone()
        accelerator.save_model(model, str(Path(args.output_dir, "model")))
    accelerator.end_training()


if __name__ == "__main__":
    main()
