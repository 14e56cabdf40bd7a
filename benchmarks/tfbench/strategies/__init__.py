"""Where variables live and how gradients meet, on several devices: the multi-device article."""
