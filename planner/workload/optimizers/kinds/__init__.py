"""One file for each optimizer, or for the variants of one: whatever stands here with a `KINDS` is planned for."""
