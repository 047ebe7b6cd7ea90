"""Serving, as the search sees a task.

judgement   what one way to serve takes and holds
task        the ways: replicas, and tensor parallel ones
"""
