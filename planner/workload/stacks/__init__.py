"""Stacks: who runs the loop, hence what is held when and in which type.

registry   the stacks, and each one's traits, read from data
facts/     one file a stack: values that the planner reads, and each fact with the file that says so
"""
