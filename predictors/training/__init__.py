"""Fitting and scoring the weights; needs the extra `train`."""
