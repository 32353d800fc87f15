"""What every project tests."""

from numerals.data import LENGTH, batches, encoded, numeral, split


def test_numerals_are_written_as_the_romans_did() -> None:
    assert [numeral(value) for value in (4, 1994, 3888)] == ["IV", "MCMXCIV", "MMMDCCCLXXXVIII"]


def test_the_longest_numeral_fits() -> None:
    assert max(len(encoded(numeral(value))) for value in range(1, 4000)) == LENGTH + 1


def test_targets_are_the_next_letters() -> None:
    inputs, target = batches(split()[0])[0]
    counted = target[:, :-1] >= 0
    assert (inputs[:, 1:][counted] == target[:, :-1][counted]).all()
