"""What an inference run tries after it ran out of memory. Pure."""

from dataclasses import replace

from gpu_plan.executor.job import Job


def smaller_batch(job: Job) -> tuple[Job | None, str]:
    """The same run with half as many prompts at once, and why; None where there is no smaller batch.

    Prompts that are done stay done.
    """
    strategy = job.saved.plan.strategy
    if any(word == "--batch" or word.startswith("--batch=") for word in job.arguments):
        return None, "out of memory, and --batch is your own word after --, so it stays"
    if strategy.micro_batch_size == 1:
        return (
            None,
            "out of memory with one prompt at a time: plan with less context, or with more weights on cpu and disk",
        )
    size = strategy.micro_batch_size // 2
    smaller = replace(strategy, micro_batch_size=size)
    plan = replace(job.saved.plan, strategy=smaller, verdict="tight", memory=None, speed=None, inference=None)
    change = f"out of memory, so {strategy.micro_batch_size} → {size} prompts at once; those that are done stay done"
    return replace(job, saved=replace(job.saved, plan=plan)), change
