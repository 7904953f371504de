"""What the lab cannot do yet, and which items wait for it. Set to True what it has learnt."""

NUM_PROBES = False
"""Signals over another number of batches than 5: the label `gradient_disparity@s=20`. Figure s."""

TRAIN_VAL = False
"""`train_val_disparity` in a run that leaves a fold out, against batches of that fold. Figure valtrain."""
