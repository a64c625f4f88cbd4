"""One program per system, all with the same roles; each runs in its own environment, as a script."""
