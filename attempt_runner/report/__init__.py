"""The audit trail of state directories as one HTML page."""
