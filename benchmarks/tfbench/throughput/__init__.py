"""Examples per second of a net at each batch size, and what they cost."""
