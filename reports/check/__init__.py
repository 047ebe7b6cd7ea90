"""A check's report (`planner.regression.result`) in the formats of a CI.

    text, markdown   worst first, one line for what did not change
    github, junit    annotations at lines; test cases
    words            what all of them say in the same words

Used by `commands.report.of_check`. Pure: values in, text out.
"""
