"""How much memory this rank holds, by interval, unseen by the script. Bytes.

    cuda      a CUDA device as the caching allocator counts it
    process   resident memory of this process, from /proc (I/O); `Memory`, what both answer to

The recorder, `observe` and prompt runs read them. Imports no torch: it is found where the script has loaded it.
"""
