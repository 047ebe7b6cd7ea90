"""Plans and sweeps as flat rows: bytes and seconds, columns by name.

    frames   rows, and pandas frames made of them
    as_csv   CSV through pandas

`reports.sweep` and the Python API use the rows; pandas is imported where a frame is made.
"""
