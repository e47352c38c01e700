"""Servers that hand out a model of their own making, one paper per file; `carrying` and `decoupling` are parts."""
