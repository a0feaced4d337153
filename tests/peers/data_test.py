"""Samplers over the data sets of Grain and of Hugging Face: the same batches as over plain arrays."""

import datasets
import grain
import jax
import numpy as np
import pytest
from support.documents import ROOT, run_python
from support.process import run_python as run_script

from bk_jax import sampling

N = 40
TABLE = {
    "x": np.arange(2 * N, dtype=np.float32).reshape(N, 2),
    "y": np.arange(N, dtype=np.int64),
}
SAMPLER = sampling.PoissonSampler(N, 6, max_batch_size=16)
KEY = jax.random.key(0)


def row(i):
    return {name: column[i] for name, column in TABLE.items()}


class Source(grain.sources.RandomAccessDataSource):
    """Random access as Grain defines it."""

    def __len__(self):
        return N

    def __getitem__(self, index):
        return row(index)

    def __repr__(self):
        return "Source()"


def hugging_face():
    columns = {name: column.tolist() for name, column in TABLE.items()}
    return datasets.Dataset.from_dict(columns).with_format("numpy")


SOURCES = {
    "grain source": Source,
    "grain map dataset": lambda: grain.MapDataset.source(Source()),
    "grain map dataset, mapped": lambda: grain.MapDataset.range(N).map(row),
    "hugging face table": hugging_face,
}


def assert_same(got, expected):
    assert got.examples.keys() == expected.examples.keys()
    for name, column in expected.examples.items():
        np.testing.assert_array_equal(got.examples[name], column)
    np.testing.assert_array_equal(got.is_padding_example, expected.is_padding_example)


@pytest.mark.parametrize("name", SOURCES)
def test_batches_are_those_of_arrays(name):
    expected = sampling.Loader(TABLE, SAMPLER).batch(KEY)
    assert 0 < np.sum(~expected.is_padding_example) < 16
    assert_same(sampling.Loader(SOURCES[name](), SAMPLER).batch(KEY), expected)


@pytest.mark.parametrize("name", SOURCES)
def test_so_are_their_parts(name):
    loaders = [
        sampling.Loader(source, SAMPLER, physical_batch_size=4)
        for source in (SOURCES[name](), TABLE)
    ]
    for got, expected in zip(*(loader.physical_batches(KEY) for loader in loaders), strict=True):
        assert_same(got, expected)


def test_an_empty_batch_has_the_shape_of_any_other():
    key = next(key for key in jax.random.split(KEY, 4000) if len(SAMPLER.indices(key)) == 0)
    batch = sampling.Loader(Source(), SAMPLER).batch(key)
    assert batch.examples["x"].shape == (16, 2)
    assert np.all(batch.is_padding_example)


def test_grain_may_read_the_rows_in_threads():
    """The sampler says which rows, Grain reads them, in order, and ours pads."""
    indices = SAMPLER.indices(KEY).tolist()
    rows = grain.MapDataset.source(indices).map(lambda i: Source()[i])
    options = grain.ReadOptions(num_threads=2, prefetch_buffer_size=4)
    read = list(rows.to_iter_dataset(options))
    got = sampling.PaddedCollate(16, row(0))(read)
    assert_same(got, sampling.Loader(TABLE, SAMPLER).batch(KEY))


def test_a_table_of_another_size_is_refused():
    few = grain.MapDataset.source(Source())[:30]
    with pytest.raises(ValueError, match="the data has 30 examples, but the plan was made for 40"):
        sampling.Loader(few, SAMPLER)


def test_a_row_that_a_filter_took_away_is_missed():
    half = grain.MapDataset.source(Source()).filter(lambda row: row["y"] >= 20)
    with pytest.raises(
        ValueError, match=r"an example is None, .* a row that was chosen must arrive"
    ):
        sampling.Loader(half, SAMPLER).batch(KEY)


def test_processes_of_grain_read_the_same_rows():
    run_script("""
        import grain, jax, numpy as np
        from absl import flags
        from bk_jax import sampling

        class Source:
            def __len__(self):
                return 40

            def __getitem__(self, i):
                return {"y": np.int64(i)}

        class Chosen:
            def __init__(self, indices):
                self.indices = indices

            def __len__(self):
                return len(self.indices)

            def __getitem__(self, i):
                return grain.RecordMetadata(index=i, record_key=int(self.indices[i]))

        flags.FLAGS.mark_as_parsed()
        chosen = sampling.PoissonSampler(40, 6, max_batch_size=16).indices(jax.random.key(0))
        rows = grain.DataLoader(
            data_source=Source(),
            sampler=Chosen(chosen),
            shard_options=grain.sharding.NoSharding(),
            worker_count=2,
        )
        batch = sampling.PaddedCollate(16, Source()[0])(list(rows))
        np.testing.assert_array_equal(batch.examples["y"][: len(chosen)], chosen)
    """)


def test_the_lines_of_the_page_run():
    assert run_python(ROOT / "docs" / "data.md") == 5
