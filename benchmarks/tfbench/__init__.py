"""Compare two or more TensorFlow wheels: time the steps of identical Keras programs in pairs."""
