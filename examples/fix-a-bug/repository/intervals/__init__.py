"""Closed intervals of whole numbers."""


def merge(intervals):
    """Return the intervals sorted, overlapping and touching ones joined."""
    merged = []
    for low, high in sorted(intervals):
        if merged and low < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged
