"""Why an attempt ended, from what it left behind.

    evidence              exits, last words, records: plain values that everything here reads
    classify, verdict     how an attempt ended, and the words for it. Pure
    hang, departure       whom a hung run waits for; ranks that left with exit code 0. Pure
    full_disk             ranks that could not write. Pure
    estimate              why an estimate of memory was wrong. Pure
    disk, host_memory     full disks; processes that the kernel killed for memory (I/O)
    stacks                where hung ranks stand (I/O)

`supervise` gathers the evidence and asks `classify`; `ladder` uses `estimate`.
"""
