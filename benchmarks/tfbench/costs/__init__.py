"""What runs cost on which machine, by dated prices."""
