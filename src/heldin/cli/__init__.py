"""The command `heldin`: one file a verb. What is computed lives in the lab; here it is only asked for and shown."""
