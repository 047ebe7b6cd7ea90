"""When the parts of a step run, stream by stream.

schedule  slices of computation and the transfers beside them, in order and dependent
overlap   a phase's collectives as slices: by how much they prolong it
gantt     a whole step as spans, and as a Chrome/Perfetto trace
scaling   why so many devices are not so many times as fast, in words
"""
