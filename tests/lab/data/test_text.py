"""Text messages as counts of words."""

import math

import pytest
import torch

from heldin.errors import DataError
from heldin.lab import data
from heldin.lab.data import text
from heldin.lab.data.text import most_frequent_words, word_counts, words_of


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("Ok lar...", ["ok", "lar", ".", ".", "."]),
        ("don't CALL 0800-123", ["don't", "call", "0800", "-", "123"]),
        ("für\t£5", ["f", "ü", "r", "£", "5"]),
        ("", []),
        ("   ", []),
    ],
)
def test_words_numbers_and_other_characters(message, words):
    assert words_of(message) == words


def test_the_most_frequent_words_are_those_in_most_texts_and_ties_are_alphabetical():
    texts = ["b a", "a c c c c", "b", "d"]
    assert most_frequent_words(texts, 3) == ["a", "b", "c"]
    assert most_frequent_words(texts, 10) == ["a", "b", "c", "d"]


def test_a_text_becomes_the_logarithm_of_its_counts():
    counts = word_counts(["a a b", "c"], ["a", "b"])
    assert counts.tolist() == [pytest.approx([math.log(3), math.log(2)]), [0.0, 0.0]]


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A data folder with 1,600 short messages, every eighth of them spam."""
    lines = [f"spam\tfree prize {number}" if number % 8 == 0 else f"ham\tsee you {number}" for number in range(1600)]
    (tmp_path / "SMSSpamCollection").write_text("\n".join(lines))
    monkeypatch.setattr(text, "NUM_WORDS", 4)
    return tmp_path


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_messages_are_split_by_class_with_the_vocabulary_of_the_training_part(root, end):
    path = root / "SMSSpamCollection"
    path.write_bytes(path.read_bytes().replace(b"\n", end.strip("\n").encode() + b"\n") + end.encode())
    arrays = data.load("sms_spam", root)
    assert (arrays.x_train.shape, arrays.x_test.shape, arrays.num_classes) == ((100, 4), (1500, 4), 2)
    assert arrays.x_train.dtype == torch.float32
    assert arrays.y_test.double().mean() == pytest.approx(1 / 8, abs=0.01)
    spam = arrays.x_train[arrays.y_train == 1]
    assert (spam == math.log(2)).sum(1).tolist() == [2] * len(spam)  # "free" and "prize" are in the vocabulary


@pytest.mark.parametrize("line", ["egg\ttext", "ham text", ""])
def test_other_lines_are_refused(root, line):
    path = root / "SMSSpamCollection"
    path.write_text(f"ham\tone\n{line}\nspam\ttwo\n")
    with pytest.raises(DataError, match=r"should hold lines of ham or spam, a tab and a text\. Found .* in line 2"):
        data.load("sms_spam", root)


def test_a_file_that_is_not_text_is_refused(root):
    (root / "SMSSpamCollection").write_bytes(b"ham\t\xff\xfe\n")
    with pytest.raises(DataError, match="cannot be read as text"):
        data.load("sms_spam", root)


def test_the_real_messages(real_file):
    arrays = data.load("sms_spam", real_file("text/sms_spam.tsv"))
    assert (arrays.x_train.shape, arrays.x_test.shape) == ((4074, 1000), (1500, 1000))
    assert arrays.y_test.double().mean() == pytest.approx(747 / 5574, abs=0.001)
    assert data.check("sms_spam", real_file("text/sms_spam.tsv")).ok
