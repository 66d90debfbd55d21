"""The graph played forward: when everything would start and end."""
