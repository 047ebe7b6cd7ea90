"""Jobs of Megatron-core in the search: which degrees are tried, and how one is judged.

layouts   degrees that are tried
judge     every rank of one pipeline, and the step's time
"""
