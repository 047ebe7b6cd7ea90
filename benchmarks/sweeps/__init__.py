"""Everything of a kind, asked one by one: models, options, command lines, documents, examples, regressions."""
