"""Candidates, their evaluation, ranking, and the reason each other one lost: one search for every task.

`search` tries the families of a `task`; `evaluator` and `judgement` are what judging and a judged candidate have in
common, `device_use` the verdict against the device. `reasons` says why one lost, `nearest_change` what would fit,
`document` turns what was found into the plan document, `predicted` into a snapshot and a timeline. `training/` and
`generation/` are the two tasks; `seconds/` is what a step's seconds say of its memory; `underway/` is what is told
before a search ends; `device_map/` places modules over GPUs, RAM and disk. No torch: traces come from providers, which
open it when one is missing.
"""
