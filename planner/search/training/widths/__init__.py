"""In how many bits a job is computed, and what that does to comparing its plans.

conversions  lines of the user's own that convert tensors to a wider type
arithmetic   what an engine gains by computing in fewer bits than whole copies do
"""
