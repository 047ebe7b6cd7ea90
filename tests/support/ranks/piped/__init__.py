"""Pipelines run by torch.distributed.pipelining on gloo, and the same ranks replayed."""
