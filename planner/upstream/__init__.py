"""What of other projects is mirrored or patched here, and whether the installed version still says the same.

    held.csv    the table: project, version, file, symbol, digest of its source, who uses it (`make upstream`)
    table       `Held`, `held`, `held_versions`: the table, read
    digests     `Source`: digests of functions, classes and constants of one Python file, as code and not as text
    sources     where an installed project's files lie, found without importing it
    moved       `moved_parts`, `moved_line`: what an installed version has changed, and the figures on the older source
    areas.toml  what the figures of a module are called

Used by `job` and tests. Imports no other project, and reads none where the versions are those of the table.
"""
