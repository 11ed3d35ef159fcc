"""One attempt, after bootstrap: from a frozen job to a decision."""
