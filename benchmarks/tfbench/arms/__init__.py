"""The compared arms: wheels with their settings, parsed from text and installed."""
