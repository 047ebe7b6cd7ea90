"""Bugs of data, schedules and wrapping."""
# ruff: noqa: E501  -- an edit is text of a script, as long as it is there

from tests.support.seeds.seed import CLASSIFY, LM, PLAIN, TRANSLATE, seed

DATA_SCHEDULES_AND_WRAPPING = [
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
