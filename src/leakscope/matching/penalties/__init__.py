"""Axis 5: what is known of natural inputs, as penalties on a trial."""
