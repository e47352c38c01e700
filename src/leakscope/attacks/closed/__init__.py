"""What closed-form attacks are made of: linear layers, whole networks layer by layer, max pooling."""
