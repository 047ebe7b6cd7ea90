"""Jobs of Megatron-core in the search: what is not looked at, and how one is judged.

judge     every rank of one pipeline, and the step's time
bounds    layouts that are not traced, and why
"""
