"""A training function as a notebook's cell has it."""


def train(model_folder: str, fails: bool = False) -> None:
    """Three steps; the planned batch comes from `current_plan()`."""
    import torch
    from accelerate import Accelerator
    from torch.utils.data import DataLoader
    from transformers import AutoConfig, AutoModelForCausalLM

    import gpu_plan

    plan = gpu_plan.current_plan()
    accelerator = Accelerator()
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model_folder), dtype=torch.float32)
    ids = torch.randint(0, 200, (32, 32))
    loader = DataLoader(ids, batch_size=plan.micro_batch_size or 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    model.train()
    for step, batch in enumerate(loader, start=1):
        loss = model(input_ids=batch, labels=batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if fails and step == 2 and accelerator.process_index == 1:
            raise ValueError("as it was told")
        if step == 3:
            return
