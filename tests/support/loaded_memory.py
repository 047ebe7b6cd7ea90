"""Loads a checkpoint as ranks do and prints the private memory that it takes: run in a process of its own.

Arguments: a folder to write the checkpoint in. Prints JSON: bytes of RssAnon (Linux, /proc/self/status) by case.
"""

import gc
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM

CONFIG = LlamaConfig(
    hidden_size=512, intermediate_size=2048, num_hidden_layers=4, num_attention_heads=8, vocab_size=16000
)


def private_bytes() -> int:
    """Memory of this process that no file stands behind."""
    gc.collect()
    status = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("RssAnon")).split()[1]) * 1024


def main(folder: str) -> None:
    LlamaForCausalLM(CONFIG).to(torch.bfloat16).save_pretrained(folder)
    # Once before anything is counted: what importing and reading themselves leave behind.
    LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    taken = {}
    for case, dtype in (("stored", "auto"), ("cast", torch.float32)):
        before = private_bytes()
        model = LlamaForCausalLM.from_pretrained(folder, dtype=dtype)
        taken[case] = private_bytes() - before
        if case == "stored":
            for parameter in model.parameters():  # as fsdp2_prepare_model upcasts
                parameter.data = parameter.data.to(torch.float32)
            taken["upcast"] = private_bytes() - before
        del model
    os.environ.update(LOCAL_RANK="1", ACCELERATE_USE_FSDP="1", FSDP_CPU_RAM_EFFICIENT_LOADING="1")
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
    before = private_bytes()
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    taken["second rank, efficient loading"] = private_bytes() - before
    print(json.dumps({"parameters": sum(p.numel() for p in model.parameters()), "taken": taken}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
