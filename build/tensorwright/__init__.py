"""The commands: options in, one function called, text out."""
