"""Strategies: functions from a traced step to the stream that one rank sees."""
