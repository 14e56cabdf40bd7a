"""What importing a wheel costs, and what of it is its kernel library's."""
