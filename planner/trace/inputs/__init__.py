"""What a traced step is given: tensors on meta, and values that are known all the same.

    batch, multimodal, padding   one micro batch for a model of any family; images; samples of unequal length
    given                        inputs that a user's factory returned
    known                        values of small tensors that a step may ask for
    meta_ops                     shape functions of operators that meta lacks, each with its source

`trace`, `generation` and `capture` use them. Imports torch.
"""
