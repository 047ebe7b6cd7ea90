"""Ways to spread a generation: `layout` names them, `stream` is one device's allocations from load to last token, and
`view` what a device sees of a generation whose modules stand on several."""
