"""Says what a job takes and how to spread it: from a model's config to a plan document. Knows none of its neighbours.

`job/` runs one request from words to an answer, `sweep/` many; `plan/` is the document, its files and differences.
`model/` finds and builds models on the meta device, `trace/` records a step or a generation of them, compiled ones too,
`capture/` one of a user's script. `strategy/` turns a trace into what one rank sees, `memory/` that into bytes,
`speed/` into seconds, on `hardware/`; `search/` tries candidates. `workload/` is what is to be run, `options/` how it
is asked for, `from_config/` how other tools ask. `regression/` compares with what was, `snapshot/` with what was
recorded.

At the root stands what every room may use: `errors`, `units`, `dtypes`, `nearest` (names), `cache_dir` (results kept
between runs), `whole_file`, `own_python` (processes of one's own) and `notebook`.

Imports go downward: regression and sweep, job, capture, search, options, strategy, from_config, memory and speed,
snapshot and trace, model, hardware and plan, workload, the root. The contracts in pyproject.toml hold the order, and
which rooms never import torch.
"""
