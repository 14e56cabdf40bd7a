"""What it costs to start epochs, calls and steps, whatever is computed in them."""
