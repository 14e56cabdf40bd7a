"""What runs inside an arm: the standard library, NumPy and TensorFlow only."""
