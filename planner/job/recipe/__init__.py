"""Jobs of several models: TRL's own trainers, captured as a script is.

prepare   the recipe that a request names, as a script with its arguments
figures   each model and each phase under one plan
"""
