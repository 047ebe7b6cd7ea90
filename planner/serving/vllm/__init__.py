"""vLLM's memory, rule by rule as its source has them. Version 0.33.0, the wheel on PyPI.

defaults   batched tokens, sequences, utilisation and graph sizes that vLLM chooses by itself
layers     what a token takes of each layer's cache
cache      groups, pages and blocks: how many requests the cache holds
weights    what a tensor parallel rank loads
profile    what the run that vLLM profiles itself by takes beyond weights
engine     all of it against one device
"""

VERSION = "0.33.0"
"""The release whose source was read."""
