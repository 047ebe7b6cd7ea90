"""Strategies that cut the model into stages, one file each; found as those beside this folder are."""
