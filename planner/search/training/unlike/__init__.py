"""Ranks of a plan that are not alike. Imports no torch.

places   which hold more than others, by what is cut
kinds    the ranks that take the same, and those of a group that may stand above its first
"""
