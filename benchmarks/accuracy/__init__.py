"""Published measurements beside their estimates: `python -m benchmarks.accuracy --truth FILE`.

`truth` reads a file and knows what its rows are about, `row` reads fields that may be missing or absurd, `models` finds
a row's model, `score` takes every row to its kind and sets aside what cannot be said, `figures` sums up, `page` writes.
A kind is a room: `memory` (training runs; the software that made the step is a room each: `trainer`, `litgpt`,
`torchtitan`), `inference`, `speed`, `kernels`.
"""
