"""One rank's allocations over two iterations: the traced step with what a strategy adds and takes away.

    rank        `RankStream`: the events in time order; what is live, and the peak, for any micro batch
    builder     `StreamBuilder`: strategies place what is theirs at points of the traced step
    placing     what was placed, at which moment, and which frees wait for the device
    moments     points, passes and phases of a run
    traced      what the traced step itself allocates, frees and leaves behind
    assembling  both put in one order
    orders      orders that are known already

The traced events are kept as arrays and only referred to.
"""
