"""Traces that come with this program, so that a plan needs neither torch nor transformers.

    book      one model's traces in one file: an index, and the traces as the cache keeps them
    source    which files of other projects a trace passed through, and whether the installed ones say the same
    lookup    `find_shipped`: the book of a model's config, where there is one and it stands for what is installed
    needed    the one line where tracing is not installed
    data/     the books, written by `make traces`
    generated/ those of models that generate: `python -m tests.support.generated_traces`
    adapters/ those of models that are trained through LoRA: `python -m tests.support.shipped_traces --lora`

A book stands for the pinned versions. That this program's own tracing still gives what stands in it is held by tests.
"""
