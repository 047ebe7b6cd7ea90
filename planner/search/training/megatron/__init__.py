"""Jobs of Megatron-core in the search.

unasked   layouts that nobody asked for
judge     every rank of one pipeline, and the step's time
"""
