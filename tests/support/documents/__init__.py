"""Commands that the documents show, and a folder in which they can be run.

commands    reads them out of the pages
workspace   the files that they name
"""
