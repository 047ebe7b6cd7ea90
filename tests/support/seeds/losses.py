"""Bugs of losses, gradients and devices."""

from tests.support.seeds.seed import CLASSIFY, LM, PLAIN, TRANSLATE, seed

LOSSES_AND_DEVICES = [
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
]
