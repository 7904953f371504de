"""The command `heldin`: one file per verb. The lab computes; the command line reads options and prints results."""
