"""The shapes in which people write training scripts by hand: each is captured right, or refused in one clear line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpu_plan.planner.capture.parent import CaptureError, capture
from gpu_plan.planner.capture.request import CaptureRequest, PlannedDevice
from tests.support.sample import sample

A100 = PlannedDevice(name="NVIDIA A100", total_bytes=85 * 10**9, capability_major=8, sm_count=108, count=2, bf16=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A script and what a capture must say of it, by the names of CapturedFacts; or words of the line it ends in."""

    text: str
    facts: dict[str, Any]
    parameters: int | None = None
    trained: int | None = None
    refused: str = ""
    files: dict[str, str] | None = None
    world_size: int = 1


_NET = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)).cuda()
"""
_DATA = """
from torch.utils.data import DataLoader, TensorDataset
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,))), batch_size=4, num_workers=2)
"""
_PLAIN = {"precision": "fp32", "optimizer": "adamw", "micro_batch": 4, "accumulation_steps": 1}
_COUNT = 8 * 16 + 16 + 16 * 2 + 2

SHAPES = {
    "csv_dataset": Shape(
        text=_NET + """
import csv
from torch.utils.data import DataLoader, Dataset
try:
    from tqdm import tqdm
except ImportError:
    tqdm = iter
class Table(Dataset):
    def __init__(self, path):
        with open(path) as file:
            self.rows = [[float(cell) for cell in row] for row in csv.reader(file)]
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, index):
        row = torch.tensor(self.rows[index])
        return row[:8], row[8].long()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for x, y in tqdm(DataLoader(Table("table.csv"), batch_size=4, shuffle=True)):
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
        facts=_PLAIN, parameters=_COUNT,
        files={"table.csv": "\n".join(",".join(["0.5"] * 8 + [str(row % 2)]) for row in range(32)) + "\n"},
    ),
    "modulo_and_accuracy": Shape(
        text=_NET + _DATA + """
import numpy as np
optimizer = torch.optim.AdamW(model.parameters())
seeded = torch.Generator(device="cuda").manual_seed(7)
noise = torch.randn(4, 8, device="cuda", generator=seeded)
hits = []
for step, (x, y) in enumerate(loader):
    logits = model(x.cuda())
    hits.append((logits.argmax(-1).cpu().numpy() == np.array(y)).mean())
    loss = nn.CrossEntropyLoss()(logits, y.cuda()) / 3
    loss.backward()
    if (step + 1) % 3 == 0:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"{np.mean(hits):.3f} {logits.detach().cpu().tolist()[0]}")
""",
        facts={**_PLAIN, "accumulation_steps": 3, "clipping": 1.0}, parameters=_COUNT,
    ),
    "old_amp_names": Shape(
        text=_NET + _DATA + """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scaler = torch.cuda.amp.GradScaler()
for x, y in loader:
    with torch.cuda.amp.autocast():
        loss = nn.functional.cross_entropy(model(x.cuda(non_blocking=True)), y.cuda())
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
""",
        facts={**_PLAIN, "precision": "fp16-mixed", "optimizer": "sgd-momentum"}, parameters=_COUNT,
    ),
    "compiled": Shape(
        text=_NET + _DATA + """
model = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
""",
        facts={**_PLAIN, "precision": "bf16-mixed", "optimizer": "adamw-fused", "compiled": True}, parameters=_COUNT,
    ),
    "data_parallel": Shape(
        text=_NET + _DATA + """
model = nn.DataParallel(model).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for x, y in loader:
    nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
    optimizer.step()
""",
        facts={**_PLAIN, "wrapper": "DataParallel"}, parameters=_COUNT,
    ),
    "spawned_ddp": Shape(
        text="""
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

def main(rank, world_size):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "12355"
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)
    model = DDP(nn.Linear(8, 2).to(rank), device_ids=[rank])
    data = TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,)))
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
    optimizer = torch.optim.AdamW(model.parameters())
    for x, y in loader:
        nn.functional.cross_entropy(model(x.to(rank)), y.to(rank)).backward()
        optimizer.step()
    dist.destroy_process_group()

if __name__ == "__main__":
    count = torch.cuda.device_count()
    mp.spawn(main, args=(count,), nprocs=count, join=True)
""",
        facts={**_PLAIN, "wrapper": "DistributedDataParallel"}, parameters=18, world_size=2,
    ),
    "trainer_with_metrics": Shape(
        text="""
import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification, DataCollatorWithPadding, Trainer, TrainingArguments
class Encoded(torch.utils.data.Dataset):
    def __len__(self):
        return 32
    def __getitem__(self, index):
        return {"input_ids": torch.randint(0, 99, (16,)), "attention_mask": torch.ones(16, dtype=torch.long),
                "labels": torch.tensor(index % 2)}
def compute_metrics(prediction):
    return {"accuracy": (np.argmax(prediction.predictions, axis=-1) == prediction.label_ids).mean()}
config = BertConfig(vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
arguments = TrainingArguments("out", per_device_train_batch_size=4, eval_strategy="epoch", report_to="none", bf16=True,
                              logging_steps=1, gradient_accumulation_steps=2)
trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=Encoded(), eval_dataset=Encoded(),
                  compute_metrics=compute_metrics)
trainer.train()
""",
        facts={
            "precision": "bf16-mixed", "optimizer": "adamw-fused", "micro_batch": 4, "accumulation_steps": 2,
            "seq_len": 16, "stack": "trainer",
        },
    ),
    "recurrent_language_model": Shape(
        text="""
import torch
from torch import nn
class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn, self.out = nn.Embedding(50, 16), nn.LSTM(16, 32, batch_first=True), nn.Linear(32, 50)
    def forward(self, x, state):
        hidden, state = self.rnn(self.embed(x), state)
        return self.out(hidden), state
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = Words().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
ids = torch.randint(0, 50, (4, 200))
state = tuple(torch.zeros(1, 4, 32).to(device) for _ in range(2))
for start in range(0, 180, 20):
    state = [each.detach() for each in state]
    logits, state = model(ids[:, start:start + 20].to(device), state)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, start + 1:start + 21].flatten().to(device))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
""",
        facts={**_PLAIN, "seq_len": 20, "clipping": 0.5},
        parameters=50 * 16 + 4 * 32 * (16 + 32) + 8 * 32 + 32 * 50 + 50,
    ),
    "looked_at_first": Shape(
        text=_NET + """
optimizer = torch.optim.Adam(model.parameters())
print(f"before: {model(torch.ones(8).cuda())[0].item():.3f}")
for _ in range(4):
    loss = model(torch.ones(4, 8).cuda()).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
""",
        facts=_PLAIN, parameters=_COUNT,
    ),
    "time_first": Shape(
        text="""
import torch
from torch import nn

class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mix, self.head = nn.Embedding(9, 8), nn.MultiheadAttention(8, 2), nn.Linear(8, 9)

    def forward(self, ids):
        x = self.embed(ids)
        return self.head(self.mix(x, x, x, need_weights=False)[0])

model = Reader().cuda()
optimizer = torch.optim.Adam(model.parameters())
ids = torch.randint(0, 9, (20, 4)).cuda()
for _ in range(4):
    loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
""",
        facts={**_PLAIN, "seq_len": 20, "rows": 4}, parameters=9 * 8 + 4 * (8 * 8 + 8) + 8 * 9 + 9,
    ),
    "adversarial": Shape(
        text=_NET + """
other = nn.Linear(2, 1).cuda()
first, second = torch.optim.Adam(model.parameters()), torch.optim.Adam(other.parameters())
for _ in range(4):
    fake = model(torch.randn(4, 8).cuda())
    second.zero_grad()
    other(fake.detach()).mean().backward()
    second.step()
    first.zero_grad()
    (-other(fake).mean()).backward()
    first.step()
""",
        facts={**_PLAIN, "models": 2}, parameters=_COUNT + 3, trained=_COUNT + 3,
    ),
    "reference_model": Shape(
        text=_NET + _DATA + """
import copy
reference = copy.deepcopy(model).eval()
optimizer = torch.optim.AdamW(model.parameters())
for x, y in loader:
    with torch.no_grad():
        wanted = reference(x.cuda())
    (model(x.cuda()) - wanted).pow(2).mean().backward()
    optimizer.step()
""",
        facts={**_PLAIN, "models": 2}, parameters=2 * _COUNT, trained=_COUNT,
    ),
    "other_optimizer": Shape(
        text=_NET + "optimizer = torch.optim.Rprop(model.parameters())\n"
        "model(torch.randn(4, 8).cuda()).sum().backward()\noptimizer.step()\n",
        facts={"optimizer": None, "micro_batch": 4}, parameters=_COUNT,
    ),
    "unsloth": Shape(
        text="""
from unsloth import FastLanguageModel
max_seq_length = 4096
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name="unsloth/Llama-3.2-1B-Instruct", max_seq_length=max_seq_length, load_in_4bit=True)
model = FastLanguageModel.get_peft_model(model, r=32, target_modules=["q_proj", "v_proj"],
                                         use_gradient_checkpointing="unsloth")
""",
        facts={},
        refused="plan unsloth/Llama-3.2-1B-Instruct --stack unsloth --peft qlora --lora-rank 32 --lora-targets"
        " q_proj,v_proj --checkpointing full --seq-len 4096",
    ),
    "deepspeed_engine": Shape(
        text="""
import torch, deepspeed
from torch import nn
model = nn.Linear(8, 2)
config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3, "bf16": {"enabled": True},
          "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 2}, "gradient_clipping": 1.0}
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for _ in range(6):
    loss = engine(torch.randn(4, 8, dtype=torch.bfloat16, device=engine.device)).float().mean()
    engine.backward(loss)
    engine.step()
""",
        facts={
            "precision": "bf16-mixed", "optimizer": "adamw-fused", "micro_batch": 4, "accumulation_steps": 3,
            "clipping": 1.0, "wrapper": "deepspeed",
        },
        parameters=18, world_size=2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sample(SHAPES, kept=["modulo_and_accuracy"]))
def test_shape(name: str, tmp_path: Path) -> None:
    shape = SHAPES[name]
    script = tmp_path / "train.py"
    script.write_text(shape.text)
    for file, text in (shape.files or {}).items():
        (tmp_path / file).write_text(text)
    request = CaptureRequest(
        script=str(script), working_directory=str(tmp_path), device=A100, seconds=1200.0, world_size=shape.world_size
    )
    if shape.refused:
        with pytest.raises(CaptureError) as caught:
            capture(request)
        assert shape.refused in str(caught.value)
        assert "\n" not in str(caught.value)
        return
    facts = capture(request)[0].facts
    assert facts is not None
    assert {key: getattr(facts, key) for key in shape.facts} == shape.facts
    if shape.parameters is not None:
        assert facts.spec["num_parameters"] == shape.parameters
    if shape.trained is not None:
        assert facts.spec["trainable_parameters"] == shape.trained
