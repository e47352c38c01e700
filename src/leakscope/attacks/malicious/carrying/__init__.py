"""Convolutions whose weights pass the picture on: which channel carries what, how it is written, how it is read."""
