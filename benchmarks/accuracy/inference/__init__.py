"""Peak memory of published generations."""
