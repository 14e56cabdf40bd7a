"""What importing a wheel costs."""
