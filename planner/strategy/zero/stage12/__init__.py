"""ZeRO-1 and ZeRO-2 on one rank, mirrored from DeepSpeed's stage_1_and_2.py.

`rank.rank_plan` is what the stages use; the flat buffer of which each rank owns a slice, and gradients on their way
through the reduce bucket, stand beside it. No torch.
"""
