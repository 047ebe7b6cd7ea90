"""Hostile inputs, generated from seeds: what `damage.hostile_inputs` runs, and a fixed sample of it in the tests.

case      `Case`: words, files and environment of one run; how its files are laid down
values    strings, numbers and structures that break readers; `spoil` puts some of them into a sound document
words     command lines
models    model configurations, safetensors headers and indexes
documents plans, sweeps, baselines, check tables, run records, manifests, snapshots, prompts and maps
tools     YAML, JSON and TOML of other tools
kinds     every generator by name; `generate(kind, seed)`
worker    runs a case in a fork of this process, or as a process of its own, and judges what it did
"""
