"""What is compared: wheels with their settings, from text to environments."""
