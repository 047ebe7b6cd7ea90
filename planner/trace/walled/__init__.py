"""A user's factory behind walls: its module is imported, its model built and traced, in a process of its own.

    client      `WalledSession`: starts it, asks it, holds it to its limits; imports no torch
    child       that process
    frames      what the two say to each other

What comes back is data: a spec as JSON, traces as arrays, a refusal in words.
"""
