"""Candidates, their evaluation, ranking, and the reason each loser lost. No torch.

What is tried, how one candidate is judged in memory and time, what is chosen and how it is told stand here.
`device_map/` places modules, `notes/` says what a user has to know of a plan. Used by `job` and the explorer.
"""
