"""SGLang's memory, rule by rule as its source has them. Version 0.5.23, the wheel on PyPI: read, not compared.

defaults   prefill chunk, graph sizes and static share that SGLang chooses by itself
pool       tokens of its pools: of all layers alike, or of full and sliding ones apart
engine     all of it against one device
server     how it is started, and what it cannot split
"""

VERSION = "0.5.23"
"""The release whose source was read."""
