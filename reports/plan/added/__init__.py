"""What jobs of other kinds add to a plan, in words.

recipe_words    models and phases of a job of several
serving_words   a server's share, its cache and what it holds
"""
