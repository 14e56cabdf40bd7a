"""Five articles whose experiments are commands here: what they claimed, what is measured."""
