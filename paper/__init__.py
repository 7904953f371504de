"""The reproduction of the paper: one file per table or figure. `python -m paper` lists, runs and builds them."""
