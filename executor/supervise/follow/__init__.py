"""What the supervisor follows while a run goes on.

    pulse       `Pulses`: the few values of each rank's record that move (I/O)
    logs        the files that ranks and launcher write to: followed, bounded (I/O)
    heartbeat   when a run that shows no step has hung, learnt from the run itself. Pure

`live` and the explorer read `pulse`; everything else is for `supervise`.
"""
