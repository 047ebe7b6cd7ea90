"""What this machine's devices do, measured: products, attention, memory, host, copies, disk, collectives.

timing    how long a call takes, as bounds over repetitions
operators products in the layouts of a training step, fused attention both ways, traffic, small operators
transfers copies between host and device, files
exchange  collectives among processes of this machine, each a child of its own (`python -m`)
measure   all of it, as a record
"""
