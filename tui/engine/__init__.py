"""The planner beside the explorer: child processes that evaluate, search and trace, so that no screen ever waits.

    messages, client   asks and answers, pickled between our own; the explorer's side of one process
    child, breaks      the process, and how a newer question ends the work on an older one
    evaluations        who evaluates a request, imported when asked for
    evaluate, infer    one configuration from kept traces: sums first, then the simulated allocator
    columns            a step's memory in as many columns as a screen shows
    kept/              traces, captures and streams that stay in memory between questions

The explorer imports `client` and `messages`; everything else runs in the children.
"""
