"""What kernels take of a device beyond the tensors that a dispatcher sees. Bytes, each with its source.

    temporaries                   `kernel_profile`: by device
    attention                     which backend runs, what it saves and takes
    cpu_scratch, operand_copies   ATen's temporaries on the CPU, its copies of operands everywhere
    zero_linear                   DeepSpeed's linear function under ZeRO-3
    saved_operators               what selective checkpointing keeps; no torch, so that cached plans can name it
    liger/, scans/                kernels in the place of Python: Liger's, and sequence models'

Recording, capture and compilation use them. Imports torch but for `saved_operators`.
"""
