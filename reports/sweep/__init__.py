"""A sweep for a reader: points as rows, and as a map of how full the devices get.

    text, markdown   the formats
    words            cells, headers and reasons, the same in every report; pages and plots use them too

Reads `planner.sweep.document`. Pure but for colours.
"""
