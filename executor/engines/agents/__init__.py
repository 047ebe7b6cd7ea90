"""Nodes on which an engine, or the user, starts one process each: one of them leads, the others serve it.

    agent    on each node: meets the others, runs the launches that the supervisor sends; on the first it is started too
    launch   the supervisor's launches, as srun does them
    guard    between an agent, or a worker of Ray, and what it starts
    led      the traits of engines whose nodes agents serve
    store    where they meet: torchelastic's c10d rendezvous, and its store

What is one allocation elsewhere is one round of the rendezvous here: where a node leaves and comes back, torchelastic
begins another round, and the run goes on from its newest whole checkpoint.
"""
