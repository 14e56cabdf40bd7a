"""Training steps of identical Keras programs on two or more TensorFlow wheels, timed in pairs."""
