"""Work of kernels whose ops didn't record it, inferred from what is recorded near them."""
