"""Bugs to put into the good scripts of tests/support/doctor, and changes that are no bugs: one edit or more each."""
# ruff: noqa: E501  -- an edit is text of a script, as long as it is there

from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).parent / "doctor"


@dataclass(frozen=True)
class Seed:
    script: str
    rule: str
    """The rule that has to find it; empty for a harmless change."""
    edits: tuple[tuple[str, str], ...]
    at: str
    """Text of the line on which the finding has to be."""

    def source(self):
        """The edited script. ValueError where an edit does not apply to exactly one place."""
        text = (SCRIPTS / f"{self.script}.py").read_text()
        for old, new in self.edits:
            if text.count(old) != 1:
                raise ValueError(f"{self.script}: {text.count(old)} places for {old!r}")
            text = text.replace(old, new)
        return text


def seed(script, rule, *edits, at=None):
    return Seed(script, rule, edits, at or edits[0][1].strip().splitlines()[0])


LM, CLASSIFY, TRANSLATE, PLAIN, TRAINER = (
    "lm_accelerate",
    "classify_accelerate",
    "translate_accelerate",
    "plain_ddp",
    "hf_trainer",
)

SEEDS = [
    # Losses and gradients.
    seed(LM, "plain-backward", ("accelerator.backward(loss)", "loss.backward()")),
    seed(CLASSIFY, "plain-backward", ("accelerator.backward(loss)", "(loss * 2).backward()")),
    seed(
        LM,
        "loss-divided-twice",
        ("loss = outputs.loss\n", "loss = outputs.loss / args.gradient_accumulation_steps\n"),
        at="accelerator.backward(loss)",
    ),
    seed(
        TRANSLATE,
        "loss-divided-twice",
        ("Accelerator(kwargs", "Accelerator(gradient_accumulation_steps=ACCUMULATION, kwargs"),
        at="accelerator.backward(loss)",
    ),
    seed(
        LM,
        "loss-divided-twice",
        ("accelerator.backward(loss)", "accelerator.backward(loss / args.gradient_accumulation_steps)"),
    ),
    seed(
        LM,
        "accumulation-unused",
        ("with accelerator.accumulate(model):", "if True:"),
        ("if accelerator.sync_gradients:\n                    acc", "if True:\n                    acc"),
        ("            if accelerator.sync_gradients:\n", "            if True:\n"),
        at="optimizer.step()",
    ),
    seed(
        CLASSIFY,
        "own-grad-scaler",
        ("    patience = P", "    scaler = torch.amp.GradScaler()\n    patience = P"),
        (
            "accelerator.backward(loss)\n            optimizer.step()",
            "scaler.scale(loss).backward()\n            scaler.step(optimizer)",
        ),
        at="scaler.scale(loss).backward()",
    ),
    seed(
        LM,
        "torch-clipping",
        ("accelerator.clip_grad_norm_(", "torch.nn.utils.clip_grad_norm_("),
        at="torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    ),
    seed(LM, "zero-grad-missing", ("                optimizer.zero_grad()\n", ""), at="optimizer.step()"),
    seed(PLAIN, "zero-grad-missing", ("            self.optimizer.zero_grad()\n", ""), at="self.optimizer.step()"),
    seed(
        LM,
        "optimizer-not-prepared",
        (
            "model, optimizer, train_loader, eval_loader, scheduler = acc",
            "model, train_loader, eval_loader, scheduler = acc",
        ),
        (
            "        model, optimizer, train_loader, eval_loader, scheduler\n",
            "        model, train_loader, eval_loader, scheduler\n",
        ),
        at="optimizer.step()",
    ),
    seed(
        CLASSIFY,
        "model-not-prepared",
        (
            "model, optimizer, train_loader, eval_loader, scheduler = acc",
            "optimizer, train_loader, eval_loader, scheduler = acc",
        ),
        (
            "        model, optimizer, train_loader, eval_loader, scheduler\n",
            "        optimizer, train_loader, eval_loader, scheduler\n",
        ),
        at="optimizer.step()",
    ),
    # Devices.
    seed(LM, "moved-after-prepare", ("    steps = 0\n", '    model.to("cuda")\n    steps = 0\n')),
    seed(
        CLASSIFY, "moved-after-prepare", ("    patience = P", "    model.cuda()\n    patience = P"), at="model.cuda()"
    ),
    seed(
        CLASSIFY,
        "moved-after-prepare",
        ("            images = images + ", '            labels = labels.to("cuda:0")\n            images = images + '),
    ),
    seed(
        TRANSLATE,
        "moved-after-prepare",
        (
            "            loss = model(**batch).loss\n",
            "            batch = {k: t.cuda() for k, t in batch.items()}\n            loss = model(**batch).loss\n",
        ),
    ),
    seed(CLASSIFY, "fixed-device", ("model = model.to(accelerator.device)", 'model = model.to("cuda:0")')),
    seed(
        PLAIN,
        "fixed-device",
        ("    torch.manual_seed(0)\n", "    torch.manual_seed(0)\n    torch.cuda.set_device(0)\n"),
        at="torch.cuda.set_device(0)",
    ),
    seed(
        LM,
        "device-games",
        ("    args = parse_args()\n", '    args = parse_args()\n    os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"\n'),
        at='os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"',
    ),
    seed(
        PLAIN,
        "device-games",
        (
            '    dist.init_process_group("gloo")\n',
            '    os.environ["LOCAL_RANK"] = "0"\n    dist.init_process_group("gloo")\n',
        ),
    ),
    seed(
        TRANSLATE,
        "device-map-auto",
        (
            "AutoModelForSeq2SeqLM.from_pretrained(name)",
            'AutoModelForSeq2SeqLM.from_pretrained(name, device_map="auto")',
        ),
        at="model, optimizer, train_loader, test_loader, scheduler = accelerator.prepare(",
    ),
    seed(CLASSIFY, "data-parallel", ("    model = Net()\n", "    model = nn.DataParallel(Net())\n")),
    seed(
        PLAIN,
        "own-processes",
        ("    main()\n", "    torch.multiprocessing.spawn(main, nprocs=2)\n"),
    ),
    seed(
        CLASSIFY,
        "second-process-group",
        (
            "    set_seed(seed, device_specific=True)\n",
            '    torch.distributed.init_process_group("nccl")\n    set_seed(seed, device_specific=True)\n',
        ),
    ),
    # Ranks.
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
    # Data.
    seed(
        PLAIN,
        "set-epoch-missing",
        ("        self.loader.sampler.set_epoch(number)\n", ""),
        at="sampler = DistributedSampler(data)",
    ),
    seed(
        LM,
        "sampler-and-shuffle",
        (
            "batch_size=args.batch_size, shuffle=True)",
            "shuffle=True, sampler=torch.utils.data.RandomSampler(range(512)))",
        ),
        at="train_loader = DataLoader(Tokens(512, 64, config.vocab_size), shuffle=True, sampler=torch.utils.data.RandomSampler(range(512)))",
    ),
    seed(
        CLASSIFY,
        "shared-out-twice",
        (
            "    train_loader = DataLoader(train, batch_size=BATCH, shuffle=True, drop_last=True)\n",
            "    sampler = torch.utils.data.DistributedSampler(train)\n    train_loader = DataLoader(train, batch_size=BATCH, sampler=sampler, drop_last=True)\n",
        ),
        at="model, optimizer, train_loader, eval_loader, scheduler = accelerator.prepare(",
    ),
    seed(
        LM,
        "loader-not-prepared",
        (
            "model, optimizer, train_loader, eval_loader, scheduler = acc",
            "model, optimizer, eval_loader, scheduler = acc",
        ),
        (
            "        model, optimizer, train_loader, eval_loader, scheduler\n",
            "        model, optimizer, eval_loader, scheduler\n",
        ),
        at="for batch in train_loader:",
    ),
    seed(
        PLAIN,
        "data-not-shared-out",
        ("batch_size=8, sampler=sampler)", "batch_size=8, shuffle=True)"),
        ("        self.loader.sampler.set_epoch(number)\n", ""),
        ("    sampler = DistributedSampler(data)\n", ""),
        at="for inputs, targets in self.loader:",
    ),
    seed(
        CLASSIFY,
        "gather-keeps-duplicates",
        ("accelerator.gather_for_metrics(", "accelerator.gather("),
        at="predictions, references = accelerator.gather((predictions, labels))",
    ),
    seed(
        TRANSLATE,
        "gather-uneven",
        (
            "            tokens = accelerator.pad_across_processes(tokens, dim=1, pad_index=tokenizer.pad_token_id)\n",
            "",
        ),
        at="tokens = accelerator.gather_for_metrics(tokens)",
    ),
    seed(
        CLASSIFY,
        "unseeded-split",
        ("[350, 50], generator=generator)", "[350, 50])"),
        ("    set_seed(seed, device_specific=True)\n", ""),
        at="train, held_out = random_split(TensorDataset(images, labels), [350, 50])",
    ),
    seed(
        CLASSIFY,
        "ranks-draw-alike",
        ("set_seed(seed, device_specific=True)", "set_seed(seed)"),
        at="images = images + 0.01 * torch.randn_like(images)",
    ),
    seed(LM, "unseeded", ("    set_seed(args.seed)\n", ""), at="for epoch in range(args.epochs):"),
    seed(
        PLAIN,
        "optimizer-before-wrap",
        (
            "from torch.nn.parallel import DistributedDataParallel as DDP",
            "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP",
        ),
        ("DDP(model)", "FSDP(model)"),
        at="optimizer = torch.optim.Adam(model.parameters())",
    ),
    # Schedules.
    seed(
        LM,
        "scheduler-not-prepared",
        (
            "model, optimizer, train_loader, eval_loader, scheduler = acc",
            "model, optimizer, train_loader, eval_loader = acc",
        ),
        (
            "        model, optimizer, train_loader, eval_loader, scheduler\n",
            "        model, optimizer, train_loader, eval_loader\n",
        ),
        at="scheduler.step()",
    ),
    seed(
        TRANSLATE,
        "scheduler-every-micro-batch",
        (
            "                scheduler.step()\n                optimizer.zero_grad()\n",
            "                optimizer.zero_grad()\n            scheduler.step()\n",
        ),
        at="scheduler.step()",
    ),
    seed(
        CLASSIFY,
        "schedule-too-short",
        (
            "    scheduler = OneCycleLR(optimizer, max_lr=0.1, epochs=EPOCHS, steps_per_epoch=len(train_loader))\n",
            "    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)\n    scheduler = OneCycleLR(optimizer, max_lr=0.1, epochs=EPOCHS, steps_per_epoch=len(train_loader))\n",
        ),
        (
            "    model, optimizer, train_loader, eval_loader, scheduler = accelerator.prepare(\n        model, optimizer, train_loader, eval_loader, scheduler\n    )\n",
            "    eval_loader, scheduler = accelerator.prepare(eval_loader, scheduler)\n",
        ),
        at="eval_loader, scheduler = accelerator.prepare(eval_loader, scheduler)",
    ),
    # Wrapping.
    seed(
        LM,
        "prepare-after-compile",
        ("    optimizer = torch.optim", "    model = torch.compile(model)\n    optimizer = torch.optim"),
        at="model, optimizer, train_loader, eval_loader, scheduler = accelerator.prepare(",
    ),
    seed(
        PLAIN,
        "wrap-after-compile",
        ("DDP(model)", "DDP(torch.compile(model))"),
        at="self.model = DDP(torch.compile(model))",
    ),
    seed(
        LM,
        "save-wrapped-model",
        (
            "        unwrapped.save_pretrained(args.output, state_dict=state)\n",
            "        model.save_pretrained(args.output)\n",
        ),
        at="model.save_pretrained(args.output)",
    ),
    seed(
        CLASSIFY,
        "save-wrapped-model",
        (
            '    accelerator.save_model(model, "classifier")\n',
            '    if accelerator.is_main_process:\n        torch.save(model.state_dict(), "classifier.pt")\n',
        ),
        at='torch.save(model.state_dict(), "classifier.pt")',
    ),
    seed(
        LM, "module-of-wrapper", ("    unwrapped = accelerator.unwrap_model(model)\n", "    unwrapped = model.module\n")
    ),
    seed(
        TRANSLATE,
        "attribute-of-wrapped-model",
        ("accelerator.unwrap_model(model).generate(", "model.generate("),
        at='tokens = model.generate(batch["input_ids"], max_new_tokens=64)',
    ),
    seed(
        LM,
        "prepared-apart",
        (
            "    model, optimizer, train_loader, eval_loader, scheduler = accelerator.prepare(\n        model, optimizer, train_loader, eval_loader, scheduler\n    )\n",
            "    model = accelerator.prepare(model)\n    optimizer, scheduler = accelerator.prepare(optimizer, scheduler)\n    train_loader, eval_loader = accelerator.prepare(train_loader, eval_loader)\n",
        ),
        at="optimizer, scheduler = accelerator.prepare(optimizer, scheduler)",
    ),
    seed(
        LM,
        "prepare-result-dropped",
        (
            "    model, optimizer, train_loader, eval_loader, scheduler = accelerator.prepare(",
            "    accelerator.prepare(",
        ),
        at="accelerator.prepare(",
    ),
]

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
