"""Strategies in which ranks hold whole experts each and send each other their tokens."""
