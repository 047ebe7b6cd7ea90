"""The public Python API behind `from gpu_plan import plan, sweep`, for notebooks and programs.

    calls      `plan` and `sweep`: a call becomes the words of a command line, and takes the same way as one
    words      keyword arguments as such words; the names and types of the options. Pure
    results    `Result` and `SweepResult`: the document found, as pandas frame, page, plot, file

Programs import these names from `gpu_plan`, never from here. Plans through `commands.job`; reports, pandas and
matplotlib are imported inside the functions that need them.
"""
