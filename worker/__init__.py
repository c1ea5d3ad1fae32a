"""The trainer: takes parameters and a batch number, computes gradients with TensorFlow, and pushes them."""
