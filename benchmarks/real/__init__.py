"""Plans beside what really ran on this machine: allocations, ranks over gloo, stacks, scripts, generations."""
