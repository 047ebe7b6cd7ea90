"""Jobs of Megatron-core in the search.

judge     every rank of one pipeline, and the step's time
"""
