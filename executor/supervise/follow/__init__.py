"""What the supervisor follows while a run goes on.

    pulse       `Pulses`: the few values of each rank's record that move (I/O)
    logs        the files that ranks and launcher write to: followed, bounded (I/O)
    hosts       which of the other hosts have come to the rendezvous (I/O)
    beginning   tells what an attempt does until its first step, and for how long already
    phases      where an attempt stands before its first step, and where its time went. Pure
    heartbeat   when a run that shows no step has hung, learnt from the run itself. Pure

`live` and the explorer read `pulse`; everything else is for `supervise`.
"""
