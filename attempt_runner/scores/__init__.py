"""One reader a score format, each from bytes to the same Score."""
