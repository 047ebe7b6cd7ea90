"""A rank of a pipeline, as torch.distributed.pipelining runs it: its stages' passes in the order of a schedule.

rank      the traces of a rank's stages as one
builder   the run laid out: each micro batch's forward and backward where the schedule has them
whole     stages that stand whole on each rank, alone or as replicas under DDP
sharded   stages that FSDP2 shards over the data parallel ranks
regime    in what types a stage computes
notes     what is refused, and what a plan rests on
"""
