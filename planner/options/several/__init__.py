"""Job documents: models and phases as somebody wrote them down, read and checked before any work is done. No torch.

given    what a document says, as values
tables   one table of a document: keys that are known, values of the right kind
models   its models
read     the document whole: what its parts mean together
"""
