from intervals import merge


def test_apart_stay_apart():
    assert merge([(5, 6), (1, 2)]) == [(1, 2), (5, 6)]


def test_overlapping_join():
    assert merge([(1, 4), (3, 6)]) == [(1, 6)]


def test_touching_join():
    assert merge([(1, 3), (3, 5)]) == [(1, 5)]


def test_inner_is_swallowed():
    assert merge([(1, 9), (2, 3)]) == [(1, 9)]
