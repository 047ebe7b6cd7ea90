"""Why an attempt ended, from what it left behind.

    evidence              exits, last words, records: plain values that everything here reads
    classify, estimate    the verdict, and why an estimate was wrong. Pure
    disk, host_memory     full disks; processes that the kernel killed for memory (I/O)
    stacks                where hung ranks stand (I/O)

`supervise` gathers the evidence and asks `classify`; `ladder` uses `estimate`.
"""
