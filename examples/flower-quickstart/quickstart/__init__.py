"""A small picture classifier on Flower."""
