"""What TRL's own code asks of a GPU or of weights that are not there.

tiled     its tiled log-probabilities as Triton computes them: in place
hashed    the hash of a model's weights by which it keeps what it computed before the first step
"""
