"""Changes that are no bugs."""
# ruff: noqa: E501  -- an edit is text of a script, as long as it is there

from tests.support.seeds.seed import CLASSIFY, LM, PLAIN, TRAINER, TRANSLATE, seed

HARMLESS = [
    # Moves that go where things already are, or change the dtype only.
    seed(
        CLASSIFY,
        "",
        (
            "            images = images + ",
            "            labels = labels.to(accelerator.device)\n            images = images + ",
        ),
    ),
    seed(
        LM,
        "",
        (
            "                outputs = model(**batch)\n                loss",
            "                batch = {k: t.to(model.device if hasattr(model, 'device') else accelerator.device) for k, t in batch.items()}\n                outputs = model(**batch)\n                loss",
        ),
    ),
    seed(
        CLASSIFY, "", ("            logits = model(images)\n", "            logits = model(images.to(torch.float32))\n")
    ),
    # A function that the arguments hold is given the model and a batch: they stay what they are.
    seed(
        LM,
        "",
        (
            "                outputs = model(**batch)\n                loss",
            "                args.look(model, batch)\n                outputs = model(**batch)\n                loss",
        ),
    ),
    # What one rank does behind a test that has another shape.
    seed(
        CLASSIFY,
        "",
        (
            "        if accelerator.is_main_process:\n            print",
            "        if accelerator.process_index == 0 and score > 0:\n            print",
        ),
    ),
    seed(
        CLASSIFY,
        "",
        (
            "        if accelerator.is_main_process:\n            print",
            "        if not accelerator.is_main_process:\n            continue\n        if score > 0:\n            print",
        ),
    ),
    seed(
        LM,
        "",
        (
            "    if accelerator.is_main_process:\n        unwrapped",
            "    is_main = accelerator.is_main_process\n    if is_main:\n        unwrapped",
        ),
    ),
    seed(PLAIN, "", ("            if self.rank == 0:\n", "            if dist.get_rank() in [-1, 0]:\n")),
    seed(
        PLAIN, "", ("            if self.rank == 0:\n", '            if os.environ["RANK"] == "0" or self.rank == 0:\n')
    ),
    seed(
        PLAIN,
        "",
        (
            "    def save(self, number):\n",
            "    def save(self, number):\n        if self.rank != 0:\n            return\n",
        ),
        (
            "            if self.rank == 0:\n                self.save(number)\n                print",
            "            self.save(number)\n            if self.rank == 0:\n                print",
        ),
    ),
    # Decisions on which all ranks agree.
    seed(
        CLASSIFY,
        "",
        (
            "            if patience.exhausted(loss.item()):\n                accelerator.set_trigger()\n            if accelerator.check_trigger():\n",
            '            mean = accelerator.reduce(loss.detach(), reduction="mean")\n            if patience.exhausted(mean.item()):\n',
        ),
    ),
    seed(
        CLASSIFY,
        "",
        (
            "        if accelerator.is_main_process:\n            print",
            "        if score > 0.99:\n            break\n        if accelerator.is_main_process:\n            print",
        ),
    ),
    seed(
        PLAIN,
        "",
        (
            "            loss.backward()\n",
            "            seen = loss.detach().clone()\n            dist.all_reduce(seen)\n            if seen.item() > 1e4:\n                return\n            loss.backward()\n",
        ),
    ),
    seed(
        LM,
        "",
        ("            if steps >= args.max_steps:\n", "            if len(batch) == 0 or steps >= args.max_steps:\n"),
    ),
    seed(
        LM,
        "",
        (
            "def evaluate(model, loader, accelerator):\n    model.eval()\n",
            "def evaluate(model, loader, accelerator):\n    model.eval()\n    first = torch.randint(0, 5, (1,))\n    accelerator.print(first)\n",
        ),
    ),
    # Other ways to accumulate, clip, seed and schedule.
    seed(LM, "", ("                optimizer.zero_grad()\n", "                model.zero_grad(set_to_none=True)\n")),
    seed(
        TRANSLATE,
        "",
        (
            "            loss = loss / ACCUMULATION\n            accelerator.backward(loss)\n",
            "            accelerator.backward(loss / ACCUMULATION)\n",
        ),
    ),
    seed(
        LM,
        "",
        (
            "                scheduler.step()\n",
            "                if accelerator.sync_gradients:\n                    scheduler.step()\n",
        ),
        (
            "model, optimizer, train_loader, eval_loader, scheduler = acc",
            "model, optimizer, train_loader, eval_loader = acc",
        ),
        (
            "        model, optimizer, train_loader, eval_loader, scheduler\n",
            "        model, optimizer, train_loader, eval_loader\n",
        ),
    ),
    seed(CLASSIFY, "", ("set_seed(seed, device_specific=True)", "set_seed(seed + accelerator.process_index)")),
    seed(
        LM,
        "",
        (
            "    unwrapped = accelerator.unwrap_model(model)\n",
            '    unwrapped = model.module if hasattr(model, "module") else model\n',
        ),
    ),
    seed(
        LM,
        "",
        (
            "    unwrapped = accelerator.unwrap_model(model)\n",
            '    unwrapped = accelerator.unwrap_model(model)\n    unwrapped.config.use_cache = True\n    unwrapped.to("cpu")\n',
        ),
    ),
    seed(LM, "", ("    steps = 0\n", "    model = torch.compile(model)\n    steps = 0\n")),
    seed(
        LM,
        "",
        (
            "import argparse\n",
            'import os\nos.environ["TOKENIZERS_PARALLELISM"] = "false"\nos.environ.setdefault("MASTER_PORT", "29500")\nimport argparse\n',
        ),
    ),
    seed(
        LM,
        "",
        (
            "    model = AutoModelForCausalLM.from_config(config)\n",
            '    model = AutoModelForCausalLM.from_pretrained(args.config, device_map={"": accelerator.device})\n',
        ),
    ),
    seed(
        TRANSLATE,
        "",
        (
            '        accelerator.print(f"epoch {epoch}: {mean.item():.4f}")\n',
            "        if accelerator.is_local_main_process:\n            print(mean.item())\n",
        ),
    ),
    seed(
        TRAINER,
        "",
        (
            "    trainer.save_model()\n",
            "    trainer.save_model()\n    if training_args.process_index == 0:\n        tokenizer.save_pretrained(training_args.output_dir)\n",
        ),
    ),
]
