"""The planner beside the explorer: child processes that evaluate, search and trace, so that no screen ever waits."""
