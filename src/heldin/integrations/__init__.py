"""Early stopping as a callback for training frameworks.

One file per framework, each with one class `HeldInStopping` that takes the same arguments. It is imported from the file
of its framework, so no other framework has to be installed.
"""
