"""vLLM's memory, rule by rule as its source has them. Version 0.33.0, the wheel on PyPI.

defaults   batched tokens, sequences, utilisation and graph sizes that vLLM chooses by itself
experts    sizes of MXFP4 experts, rounded up for the kernels of a device
cache      groups, pages and blocks: how many requests the cache holds
engine     all of it against one device
server     how it is started, and what it cannot split
"""

VERSION = "0.33.0"
"""The release whose source was read."""
