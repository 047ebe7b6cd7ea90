"""Linear layers of one rank.

norms   Transformer Engine's norms
linear  Transformer Engine's in 16 bits, and the modules that hold the weights
scaled  the same in float8
float8  operands in float8, and their products
"""
