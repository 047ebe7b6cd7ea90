"""What degrees that nobody asked for take at the very least: what cannot come first is not traced.

alone     ranks that share nothing of a sample
together  ranks that compute one copy of the model together
stages    ranks that hold stages of one copy
megatron  layouts of Megatron-core's own model
"""
