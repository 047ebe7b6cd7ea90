"""Says what a job takes and how to spread it: from a model's config to a plan document. Knows none of its neighbours.

`job/` runs one request from words to an answer, `sweep/` many; `plan/` is the document, its files and differences.
`model/` finds and builds models on the meta device, `trace/` records a step of them, `capture/` one of a user's script,
`compile/` what torch.compile makes of it. `strategy/` turns a trace into what one rank sees, `memory/` that into bytes,
`speed/` into seconds, on `hardware/`; `search/` tries candidates. `workload/` is what is to be run, `options/` how it
is asked for, `from_config/` how other tools ask. `regression/` compares with what was, `snapshot/` with what was
recorded.

Data goes one way: options < capture < search < strategy < trace < model < workload, and errors, units and dtypes below.
"""
