"""What has to be told beside a plan's figures, because no flag of a launcher does it. Words only.

    checkpointing, liger   how a loop gets a plan's checkpointing, and Liger's kernels
    settings               what `--set` changes about the machine

Used by `search`; no torch.
"""
