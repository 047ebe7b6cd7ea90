"""Peaks of single kernels."""
