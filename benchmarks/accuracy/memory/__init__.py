"""Peak memory of training runs, and whether they lived."""
