"""The command `heldin`, one file per subcommand. The lab computes; this package reads options and prints."""
