"""Distribution strategies on several devices: variable placement and gradient exchange."""
