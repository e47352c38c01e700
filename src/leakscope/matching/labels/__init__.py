"""Axis 1: where labels come from: granted, read off the last layer, or optimised along."""
