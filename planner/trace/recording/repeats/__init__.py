"""Steps that run some operators once more for each sample: a vision model that attends image by image, or window by
window, in a loop of Python.

windows    finds such loops while a step runs, and leaves out what they do for further samples
bodies     where two recordings differ by one more run through each of them
grown      the recording at any micro batch, from a few small ones
"""
