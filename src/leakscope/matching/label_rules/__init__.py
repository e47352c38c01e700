"""How labels are read off the last layer, one family of rules per file; `matching.labels` is the front."""
