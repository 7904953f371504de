"""The study: what an early stop is worth on a single run. Run it with `python -m study`."""
