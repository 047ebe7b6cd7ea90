"""What is told, beside what others chose, published or logged: advice, machines, jobs, engines, configurations."""
