"""Candidates that are cut into stages.

judge   every rank of one pipeline replayed, and what is refused
step    what is given to judge one, and what it comes to
times   how long a stage takes, what it waits for within it, and when the step ends
"""
