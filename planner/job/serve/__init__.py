"""A server's job.

prepare   `--task infer --server vllm`, read and prepared for the search
"""
