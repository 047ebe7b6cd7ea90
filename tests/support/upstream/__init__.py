"""Gathers what this project's code says that it mirrors or patches: `make upstream` writes planner/upstream/held.csv.

texts      docstrings, comments and constants of a module, as texts
mentions   files of other projects and symbols that a text names
places     which installed file a mention means
patches    what code patches or imports though it is private
gather     all of it, as rows of the table
"""
