"""What jobs of other kinds add to a plan, in words.

degree_words    what each degree sends, and what it is good for
left_out_words  kinds of plans that were not traced
rank_words      ranks that are not alike, and one to which more tokens go
recipe_words    models and phases of a job of several
serving_words   a server's share, its cache and what it holds
"""
