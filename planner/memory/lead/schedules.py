"""How far the host is ahead of the device: what nobody decides, bounded by code alone."""

from enum import IntEnum


class Schedule(IntEnum):
    """How far the host is ahead of the device."""

    WAITS = -1
    """Nowhere: whatever was freed can be taken again at once."""
    AHEAD = 0
    """As far as its code lets it, while the other streams finish with what they wait for."""
    LAGS = 1
    """As far as its code lets it, while the other streams finish as late as anything that was waited for allows."""
    QUEUED = 2
    """Past what its code waits for on the way, until the device's queue of launches is full."""


RUNS_AHEAD = (Schedule.AHEAD, Schedule.LAGS, Schedule.QUEUED)
LIMITED = (Schedule.AHEAD, Schedule.LAGS)
"""Schedules in which the host waits where its code says so."""
ALWAYS = 1 << Schedule.QUEUED
"""Bit of a wait that holds the host in every schedule."""

__all__ = ["ALWAYS", "LIMITED", "RUNS_AHEAD", "Schedule"]
