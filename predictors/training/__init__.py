"""Fit and score the weights; needs the extra ``train``."""
