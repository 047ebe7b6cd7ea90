"""Candidates, their evaluation, ranking, and the reason each loser lost."""
