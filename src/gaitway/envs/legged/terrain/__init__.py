"""What lies under and around legged robots, as functions of tensors."""
