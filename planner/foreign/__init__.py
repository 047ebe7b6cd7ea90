"""Files that others wrote: read as bytes of a regular file, as many as fit, and as values of bounded size and depth.

    files    `read_bytes`, `open_regular`: no FIFO, device, socket, folder or file of the kernel's is ever waited for
    limits   `MalformedError`; how deep and how large values may be
    memory   `at_most`: for readers that know no bound of their own
    as_json, as_yaml, as_toml   `*_value`: text to values, in bounded time and memory

Every reader of a foreign file stands on these. A key that stands twice: TOML refuses it; in JSON and YAML the last one
counts, as it does for the tools whose files they are (json, transformers, PyYAML's safe_load). Imports nothing of this
package; yaml only where YAML is read.
"""
