"""The same stopping in the tools people already use: one small file a framework, and what they share in `_adapter`.

Every file has one class, `HeldInStopping`, with the same arguments; it is imported from its framework's file, so that
no framework is needed but one's own.
"""
