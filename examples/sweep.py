"""How far does a job scale, and what does its sequence length cost? Plans compared from Python.

As a script: `python examples/sweep.py [MODEL] [GPUS]`. Cells begin with `# %%`: editors run them as a notebook, where
the last value of a cell shows itself. Needs `gpu-plan[frames,plots]`; no GPU.
"""

# %% One job: the best plan, and every candidate as a row
import sys

from gpu_plan import plan, sweep

model = sys.argv[1] if len(sys.argv) > 1 else "EleutherAI/pythia-70m"
gpus = sys.argv[2] if len(sys.argv) > 2 else "1xT4"

result = plan(model, gpus=gpus, seq_len=512)
frame = result.frame()
print(frame[["strategy", "micro_batch_size", "checkpointing", "device_used_bytes", "samples_per_second"]].head())

# %% What fills the memory of the best plan
memory = result.memory_frame()
print(memory[memory["rank"] == 1].set_index("category")["bytes"].sort_values(ascending=False).head(4))

# %% A grid: sequence length by micro batch
grid = sweep(model, gpus=gpus, over={"seq_len": [512, 1024], "micro_batch": [1, 8, 32]}, checkpointing="none")
points = grid.frame()
points["GiB"] = points["device_used_bytes"] / 2**30
print(points.pivot(index="seq-len", columns="micro-batch", values="GiB"))
grid.save("sweep.html", force=True)  # a page with a heat map; .md, .csv and .json as well
