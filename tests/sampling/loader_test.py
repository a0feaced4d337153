"""Loaders: every kind of data gives the same batches, in one shape."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bk_jax import sampling

COUNT = 20
DATA = {
    "x": np.arange(COUNT * 2, dtype=np.float32).reshape(COUNT, 2) + 1,
    "y": np.arange(COUNT, dtype=np.int32) + 1,
}


class Fixed:
    """A sampler whose batches are chosen by the test: the key is the list of indices."""

    num_examples, batch_size = COUNT, 4

    def __init__(self, max_batch_size=None):
        self.max_batch_size = max_batch_size

    def indices(self, key):
        return np.asarray(key, np.int64)


class MapStyle:
    """What PyTorch calls a map-style data set, and what a Grain data source is."""

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        assert type(index) is int
        return {"x": DATA["x"][index], "y": DATA["y"][index]}


class InBulk(MapStyle):
    """PyTorch's way to fetch several examples at once."""

    def __getitems__(self, indices):
        return [MapStyle.__getitem__(self, index) for index in indices]

    def __getitem__(self, index):
        assert index == 0, "only the shape of an empty batch is looked up one by one"
        return super().__getitem__(index)


SOURCES = {
    "numpy": DATA,
    "jax": jax.tree.map(jnp.asarray, DATA),
    "map style": MapStyle(),
    "in bulk": InBulk(),
}


@pytest.fixture(params=SOURCES)
def source(request):
    return SOURCES[request.param]


def check(batch, indices, size):
    real = len(indices)
    np.testing.assert_array_equal(batch.is_padding_example, np.arange(size) >= real)
    for name, array in batch.examples.items():
        assert array.dtype == DATA[name].dtype
        np.testing.assert_array_equal(array[:real], DATA[name][list(indices)])
        np.testing.assert_array_equal(array[real:], np.zeros_like(DATA[name][: size - real]))


@pytest.mark.parametrize("indices", [[], [0, 5, 19], [1, 2, 3, 4]], ids=len)
def test_a_batch_is_padded_with_zeros(source, indices):
    loader = sampling.Loader(source, Fixed(max_batch_size=4))
    check(loader.batch(indices), indices, 4)


@pytest.mark.parametrize(("count", "parts"), [(0, 1), (3, 1), (7, 3)])
def test_physical_batches_cover_the_batch(source, count, parts):
    loader = sampling.Loader(source, Fixed(), physical_batch_size=3)
    indices = list(range(count))
    batches = list(loader.physical_batches(indices))
    assert len(batches) == parts
    for number, batch in enumerate(batches):
        check(batch, indices[3 * number : 3 * number + 3], 3)


def test_physical_batches_of_a_truncated_batch_are_one_by_default():
    loader = sampling.Loader(DATA, Fixed(max_batch_size=6))
    (batch,) = loader.physical_batches([1, 2])
    check(batch, [1, 2], 6)


def test_a_collate_function_of_ones_own():
    def collate(items):
        return {"y": np.stack([item["y"] for item in items]) * 2, "n": np.ones(len(items))}

    loader = sampling.Loader(MapStyle(), Fixed(), 3, collate)
    (batch,) = loader.physical_batches([4, 6])
    np.testing.assert_array_equal(batch.examples["y"], [10, 14, 0])
    np.testing.assert_array_equal(batch.examples["n"], [1, 1, 0])


def torch_like_loader(dataset, batch_sampler, collate_fn):
    """What `torch.utils.data.DataLoader(dataset, batch_sampler=, collate_fn=)` does."""
    for indices in batch_sampler:
        yield collate_fn([dataset[index] for index in indices])


def test_a_loader_that_takes_a_batch_sampler_and_a_collate_function():
    sampler = sampling.PoissonSampler(COUNT, 4, max_batch_size=8)
    keys = [jax.random.key(seed) for seed in range(2)]
    collate = sampling.PaddedCollate(8, MapStyle()[0])
    batches = torch_like_loader(MapStyle(), sampler.batches(keys), collate)
    for key, batch in zip(keys, batches, strict=True):
        check(batch, sampler.indices(key), 8)
    check(collate([]), [], 8)


def test_a_batch_that_does_not_fit_is_refused_rather_than_cut():
    collate = sampling.PaddedCollate(2, MapStyle()[0])
    with pytest.raises(ValueError, match="a batch of 3 examples does not fit into 2 rows"):
        collate([MapStyle()[0]] * 3)


def test_collated_arrays_need_a_row_per_example():
    collate = sampling.PaddedCollate(4, MapStyle()[0], lambda items: np.zeros(7))
    with pytest.raises(ValueError, match=r"an array of shape \(7,\) from 2 examples"):
        collate([MapStyle()[0]] * 2)


def test_examples_of_different_structure_are_refused():
    with pytest.raises(ValueError, match="examples differ in structure"):
        sampling.stack([{"x": 1}, {"y": 1}])


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (DATA, {}, "batches of any size need physical_batch_size"),
        (
            DATA,
            {"physical_batch_size": 0},
            "physical_batch_size must be a whole number of at least",
        ),
        (np.zeros(7), {"physical_batch_size": 2}, "has 7 examples, but the plan was made for 20"),
        ({"a": np.zeros(3), "b": np.zeros(4)}, {"physical_batch_size": 2}, "share a leading axis"),
        (3.0, {"physical_batch_size": 2}, "__getitem__ and __len__; got float"),
    ],
)
def test_loaders_that_can_not_work_are_refused(source, options, message):
    with pytest.raises(ValueError, match=message):
        sampling.Loader(source, Fixed(), **options)


def test_one_shape_for_batches_of_any_size_is_refused():
    loader = sampling.Loader(DATA, Fixed(), 2)
    with pytest.raises(ValueError, match="does not fit into one shape"):
        loader.batch([1])


def test_rows_of_device_arrays_are_fetched_at_one_shape():
    shapes = []

    class Watched:
        """An array that notes the shape of every index."""

        shape, dtype = (COUNT,), np.dtype("float32")

        def __getitem__(self, index):
            shapes.append(index.shape)
            return np.arange(COUNT, dtype=np.float32)[index]

    loader = sampling.Loader(Watched(), Fixed(), 3)
    for count in (0, 1, 5):
        list(loader.physical_batches(range(count)))
    assert set(shapes) == {(3,)}
