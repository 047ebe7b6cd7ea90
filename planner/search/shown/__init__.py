"""What a document says of one candidate, whatever else was found: `sections` holds it, tasks make it."""
