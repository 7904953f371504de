"""The lab holds the experiments: data, models, one training loop, and what is read from its records."""
