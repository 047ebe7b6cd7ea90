"""Training as a task of the search: families are a strategy, its offload and checkpointing; sizes are micro batches.

`task` is what the search is given; `candidates` says what is tried, `explore` tries a family's micro batches,
`evaluate` judges one; `evaluation` and `compilation` are steps that evaluate or are compiled, `relaxed` is what is
suggested where nothing fits, `told/` what a plan is told as, `notes/` what a loop must do itself, `widths/` the user's
own lines that widen tensors, `least/` what candidates take at the very least, `unlike/` ranks that hold more than
others, `piped/` stages, `megatron/` a library's own model, `elsewhere/` what other processes judge. No torch.
"""
