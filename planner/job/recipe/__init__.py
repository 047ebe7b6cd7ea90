"""Jobs of several models: TRL's own trainers, captured as a script is.

prepare   the recipe that a request names, as a script with its arguments
provider  its traces: another micro batch is another argument
figures   each model and each phase under one plan
engine    an engine beside the trainer
spread    batches, and which devices train and which generate
"""
