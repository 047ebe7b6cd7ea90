"""Megatron-core's LLaVAModel, of which no plan is made: what its regression run measured is replayed by parts of a
GPT's.

vision   CLIP's tower, and the projection to the language model's width
model    both before a language model whose tokens ranks share
"""
