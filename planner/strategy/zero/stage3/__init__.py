"""ZeRO-3 on one rank, mirrored from DeepSpeed's stage3.py and what it calls.

`infinity.rank_plan` is what the stage uses. The other modules: partitions and sub-groups, which parameters are gathered
when, leaf modules and views that hold gathered weights, offload to host and NVMe with its swap buffers, and traffic.
No torch.
"""
