"""transformers imported without what no plan asks of it: names of large packages come when they are first used."""
