"""What the gradient of a linear layer with bias gives away: which layers, and which of their rows."""
