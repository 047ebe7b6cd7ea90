"""The first training step, as the user wrote it.

recording  the state machine over forward, loss and backward
given      what the model is given: samples and tokens of the micro batch
wholes     the frozen model that a part belongs to

`capture.window` and `capture.block` use them. Imports torch.
"""
