"""Jobs given by named values instead of words: by configuration files, programs and other processes.

    named        values by option name, checked, as what argparse would have made of them
    configured   what the project's own configuration says, by named values
    document     the same as JSON, by which another process is asked

A value from a file is put where its option stands, never behind it: it cannot become another option. No torch.
"""
