"""What CUDA, HIP and torch.distributed guarantee."""
