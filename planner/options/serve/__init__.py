"""Options of a server.

read   option words as a `ServeWorkload`
"""
