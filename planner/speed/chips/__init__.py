"""How devices of one kind differ from the one that was measured.

power    what a power limit below a device's own leaves of its arithmetic
slowest  the slowest of several, which all wait for
"""
