"""How long it takes to train to an accuracy, and what that costs."""
