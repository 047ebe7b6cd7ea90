"""Fine-tuning with Accelerate."""
