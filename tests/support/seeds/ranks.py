"""Bugs of what some ranks do alone, or all of them at once."""
# ruff: noqa: E501  -- an edit is text of a script, as long as it is there

from tests.support.seeds.seed import CLASSIFY, LM, PLAIN, TRAINER, TRANSLATE, seed

RANKS = [
    seed(
        LM,
        "print-on-every-rank",
        ('accelerator.print(f"step', 'print(f"step'),
        at='print(f"step {steps} loss {loss.item():.4f}")',
    ),
    seed(
        CLASSIFY,
        "print-on-every-rank",
        ("        if accelerator.is_main_process:\n            print", "        if score > 0:\n            print"),
        at='print(f"epoch {epoch}: {score:.3f}")',
    ),
    seed(
        PLAIN,
        "save-on-every-rank",
        ("            if self.rank == 0:\n", "            if number > 0:\n"),
        at='torch.save({"model": self.model.module.state_dict(), "epoch": number}, "plain.pt")',
    ),
    seed(
        LM,
        "save-on-every-rank",
        ("    if accelerator.is_main_process:\n        unwrapped", "    if args.output:\n        unwrapped"),
        at="unwrapped.save_pretrained(args.output, state_dict=state)",
    ),
    seed(
        LM,
        "collective-on-some-ranks",
        (
            "        value = evaluate(model, eval_loader, accelerator)\n",
            "        if accelerator.is_main_process:\n            value = evaluate(model, eval_loader, accelerator)\n",
        ),
        at='losses.append(accelerator.gather_for_metrics(outputs.loss.repeat(len(batch["input_ids"]))))',
    ),
    seed(
        LM,
        "collective-on-some-ranks",
        (
            "                if steps % args.save_every == 0:",
            "                if accelerator.is_main_process and steps % args.save_every == 0:",
        ),
        at='accelerator.save_state(os.path.join(args.output, f"step-{steps}"))',
    ),
    seed(
        CLASSIFY,
        "collective-on-some-ranks",
        (
            "    accelerator.wait_for_everyone()\n",
            "    if not accelerator.is_main_process:\n        return\n    accelerator.wait_for_everyone()\n",
        ),
        at="accelerator.wait_for_everyone()",
    ),
    seed(
        PLAIN,
        "collective-on-some-ranks",
        ("            if self.rank == 0:\n", "            if self.rank == 0:\n                dist.barrier()\n"),
        at="dist.barrier()",
    ),
    seed(
        TRANSLATE,
        "collective-on-some-ranks",
        (
            '        mean = accelerator.reduce(total_loss, reduction="mean") / len(train_loader)\n        accelerator.print(f"epoch {epoch}: {mean.item():.4f}")\n',
            '        if accelerator.process_index == 0:\n            mean = accelerator.reduce(total_loss, reduction="mean")\n            print(mean.item())\n',
        ),
        at='mean = accelerator.reduce(total_loss, reduction="mean")',
    ),
    seed(
        TRAINER,
        "trainer-on-some-ranks",
        ("    trainer.save_model()\n", "    if trainer.is_world_process_zero():\n        trainer.save_model()\n"),
        at="trainer.save_model()",
    ),
    seed(
        CLASSIFY,
        "rank-leaves-loop-alone",
        (
            "                accelerator.set_trigger()\n            if accelerator.check_trigger():\n                break",
            "                break",
        ),
        at="break",
    ),
    seed(
        CLASSIFY,
        "rank-leaves-loop-alone",
        (
            "            accelerator.backward(loss)\n",
            "            if torch.isnan(loss):\n                continue\n            accelerator.backward(loss)\n",
        ),
        at="continue",
    ),
    seed(
        LM,
        "rank-leaves-loop-alone",
        ("            if steps >= args.max_steps:\n", "            if loss.item() < 0.1:\n"),
        at="break",
    ),
    seed(
        LM,
        "rank-leaves-loop-alone",
        ("    steps = 0\n", "    begun = time.time()\n    steps = 0\n"),
        ("import os\n", "import os\nimport time\n"),
        ("            if steps >= args.max_steps:\n", "            if time.time() - begun > 3600:\n"),
        at="break",
    ),
    seed(
        PLAIN,
        "rank-leaves-loop-alone",
        (
            "            loss.backward()\n",
            "            if loss.item() > 1e4:\n                return\n            loss.backward()\n",
        ),
        at="return",
    ),
]
