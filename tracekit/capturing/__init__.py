"""Predict a program that never ran: its ops from a run on tensors without data, its kernels from these."""
