"""One rank's part of a model that several ranks compute together, as transformers itself parts it.

tensor     tensor parallel by the class's plan, in a process group that never sends
experts    tokens that are sent to experts of other ranks, evenly
plans      how classes say that they are split, read without importing them
context    attention over tokens that several ranks share
stages     one stage of a pipeline: transformers' class without the others' layers
numbers    the trace of some layers as that of equal ones; imports no torch
errors     what a class or its sizes do not allow; imports no torch
"""
