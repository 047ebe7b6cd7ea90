"""Runs the main job, training or inference: from words to a plan document, through the caches.

Others ask for a request's answer (`run.run_job`), and whether a saved plan still holds here (`checks`). What searches
is imported only when no kept plan answers.
"""
