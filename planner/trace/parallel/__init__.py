"""One rank's part of a model that several ranks compute together, as transformers itself parts it.

tensor     tensor parallel by the class's plan, in a process group that never sends
experts    tokens that are sent to experts of other ranks, evenly
plans      how classes say that they are split, read without importing them
errors     what a class or its sizes do not allow; imports no torch
"""
