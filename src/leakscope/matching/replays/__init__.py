"""Axis 3: how the attacker imagines the client computed its update."""
