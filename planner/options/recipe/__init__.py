"""Options of a job of several models.

read     option words as a `RecipeGiven`, and what the rest of the planner is told in their place
engine   of an engine that generates for the trainer
"""
