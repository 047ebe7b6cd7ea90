"""How a job is asked for: the words of the command line and of configuration files as a workload, each value with its
origin. No torch.

Everything that parses or checks an option stands here, and what a job is asked for and answers as values; what runs it
stands in `job`.
"""
