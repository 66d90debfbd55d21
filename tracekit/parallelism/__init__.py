"""The traced job in another parallel layout: DDP, FSDP, tensor, expert and pipeline parallelism, and batch size."""
