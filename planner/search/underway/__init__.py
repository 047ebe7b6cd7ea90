"""A search that has not ended: `watch` is told what it does, `known` says what it has found where its user stops it."""
