"""Axis 6: how candidates move."""
