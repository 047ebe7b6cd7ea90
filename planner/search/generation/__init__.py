"""Generating as a task of the search: its families are layouts, and each has the one size that was asked for.

`task` is what the search is given; `evaluate` judges a layout, `rank` one device of it, `mapped` a device map that the
solver finds (`device_map`), `placement` says where stages lie; `judgement` is what comes of that. `times` are seconds
of a prefill and a decode step, `limits` the longest context and the largest batch, `relaxed` what is suggested where
nothing fits, `command` what runs prompts under the plan. No torch.
"""
