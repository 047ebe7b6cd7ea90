"""`--sweep OPTION=A,B,C`: many jobs as one answer.

    axes, kinds   options that vary and the points they span; the sweeps behind two plots. Pure
    run           `run_sweep`: every value checked before any work, then job after job, traces shared (I/O)
    document      `SweepDocument`: what was found, point by point; versioned

The front door runs sweeps, reports read `document` and nothing else here.
"""
