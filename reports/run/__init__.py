"""A finished or running run against its plan.

    compare, figures, inference   what was predicted, what was measured, whether the two can be compared
    text, markdown, as_json       the formats
    words                         the same words in all of them
    listing                       the runs of a folder, a line each

Reads `executor.records`; pages, plots and the explorer use `compare`, `figures` and `words`. Pure.
"""
