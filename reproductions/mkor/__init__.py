"""Tables and figures of MKOR."""
