"""What answers cost: seconds, processor time, and counts that no machine changes."""
