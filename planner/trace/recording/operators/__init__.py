"""What one operator is and does.

facts          what its schema says
meta_results   what it makes on meta, remembered
engine_adds    whether a device would run it in place
work           FLOPs, and what it does not read
"""
