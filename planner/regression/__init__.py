"""Memory regressions: jobs that a repository names, their baselines, and what has changed since."""
