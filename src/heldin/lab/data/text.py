"""Text messages as counts of words: the SMS Spam Collection."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy
import torch

from heldin.errors import DataError
from heldin.lab.data.arrays import Array, Arrays, Raw, from_numbers
from heldin.lab.data.files import DataFormat, first_existing
from heldin.lab.data.splits import stratified

LABELS = {"ham": 0, "spam": 1}
NUM_WORDS = 1_000

_WORD = re.compile(r"[a-z0-9']+|[^\sa-z0-9']")


def sms_spam(page: str, *, num_test: int) -> DataFormat:
    """Messages, one per line: `ham` or `spam`, a tab, the text. The test part is fixed, and stratified by class.

    A message becomes log(1 + count) of each of the 1,000 words that most training messages contain. `page` is where the
    file can be downloaded.
    """

    def read(name: str, path: Path) -> Arrays:
        labels, texts = _read_messages(path)
        train, test = (part.tolist() for part in stratified(torch.tensor(labels), num_test))
        vocabulary = most_frequent_words([texts[index] for index in train], NUM_WORDS)
        x = word_counts(texts, vocabulary)
        y = numpy.array(labels)
        return from_numbers(name, Raw(x[train], y[train], x[test], y[test], str(path)), num_classes=len(LABELS))

    return DataFormat(
        read=read,
        find=lambda root: first_existing(root, "text/sms_spam.tsv", "SMSSpamCollection"),
        instructions=f"download {page}, and put SMSSpamCollection into ROOT.",
    )


def words_of(text: str) -> list[str]:
    """The words, numbers and single other characters of a text, in lower case.

    Examples:
        >>> words_of("WIN £1000 now!")
        ['win', '£', '1000', 'now', '!']
    """
    return _WORD.findall(text.lower())


def most_frequent_words(texts: Sequence[str], num: int) -> list[str]:
    """The words that most texts contain, the most frequent first; ties in alphabetical order."""
    found = Counter(word for text in texts for word in {*words_of(text)})
    return sorted(found, key=lambda word: (-found[word], word))[:num]


def word_counts(texts: Sequence[str], vocabulary: Sequence[str]) -> Array:
    """log(1 + count) of each word of the vocabulary in each text: (n, words)."""
    columns = {word: number for number, word in enumerate(vocabulary)}
    counts = numpy.zeros((len(texts), len(vocabulary)), dtype=numpy.float32)
    for row, text in zip(counts, texts, strict=True):
        for word in words_of(text):
            if word in columns:
                row[columns[word]] += 1
    return numpy.log1p(counts)


def _read_messages(path: Path) -> tuple[list[int], list[str]]:
    """The labels and texts of a file."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as text: {error}. Replace the file.") from error
    labels, texts = [], []
    for number, line in enumerate(lines, start=1):
        label, tab, text = line.rstrip("\r").partition("\t")
        if not line and number == len(lines):
            break
        if not tab or label not in LABELS:
            raise DataError(
                f"{path} should hold lines of ham or spam, a tab and a text. Found {line[:40]!r} in line {number}."
            )
        labels.append(LABELS[label])
        texts.append(text)
    return labels, texts
