"""One loop, six axes: labels × candidate × replay × distance × penalties × optimiser."""
