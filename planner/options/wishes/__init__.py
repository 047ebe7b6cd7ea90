"""What is wanted of a job beyond the job itself: `read` turns its words into values, `amounts` are money and counts."""
