"""Megatron-core's T5 and BERT, of which no plan is made: what their regression runs measured is replayed by the same
parts as a GPT's.

attending   attention of a decoder over what an encoder put out
t5          both stacks on one rank, and the loss
bert        one stage of an encoder, with its heads
"""
