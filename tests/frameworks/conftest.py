"""Settings that JAX and Keras read once, when they are imported.

Keras computes on JAX here: on torch its attention would be torch's kernel, which is nothing new.
This folder's requirements are in tools/frameworks.txt, and a missing one is an error, not a skip.
"""

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["KERAS_BACKEND"] = "jax"

import jax

jax.config.update("jax_enable_x64", True)  # else a float64 array is a float32 one
