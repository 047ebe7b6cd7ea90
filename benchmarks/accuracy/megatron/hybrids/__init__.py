"""Megatron-core's HybridModel, of which no plan is made: what its regression runs measured is replayed by parts of a
GPT, and by a mixer of its own.

mixer    Mamba-2's mixer on one rank
squared  experts without a gate
model    one stage of layers of four kinds
"""
