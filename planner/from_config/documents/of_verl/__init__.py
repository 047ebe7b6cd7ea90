"""What verl says of its passes, and of Megatron's workers."""
