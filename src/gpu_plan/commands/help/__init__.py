"""`plan help [VERB]`: what `--help` says, of the main job or of a verb.

command    the verb
"""
