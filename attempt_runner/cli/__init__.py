"""The command line: parse, call, print. One file a command; the only exit."""
