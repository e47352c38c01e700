"""Axis 4: how far a candidate's gradient is from the observed one."""
