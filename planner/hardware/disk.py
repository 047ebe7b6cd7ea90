"""How fast a node's disk is, where nothing is known of it."""

NVME_RANGE = (1e9, 3e9, 7e9)
"""Bytes per second of one node's NVMe: a virtual machine's, a data-centre drive's, the fastest single drive's."""
NVME_BYTES_PER_S = NVME_RANGE[1]
"""What is expected, of weights that are read for a generation as of ZeRO's swap files."""
