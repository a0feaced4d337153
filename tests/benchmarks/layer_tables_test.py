"""The layer tables in configs/models: they can be read, and hold what the models hold."""

import pytest

import layer_tables
from benchmarks.paper.complexity import compared, layers, printed

# All parameters, as timm, torchvision and Transformers count them.
TOTALS = {
    "beit_base_patch16_224": 86_530_984,
    "bert-base-uncased": 109_482_240,
    "convnext_small": 50_223_688,
    "crossvit_tiny_240": 7_014_800,
    "densenet121": 7_978_856,
    "gpt2": 124_439_808,
    "resnet50": 25_557_032,
    "roberta-base": 124_645_632,
    "t5-small": 60_506_624,
    "vgg16": 138_357_544,
    "vit_base_patch16_224": 86_567_656,
    "wide_resnet101": 126_886_696,
}


def test_files_are_what_the_tool_writes():
    documents = layer_tables.documents()
    assert sorted(documents) == layers.names()
    for name, text in documents.items():
        assert (layers.MODELS / f"{name}.toml").read_text() == text, name


@pytest.mark.parametrize("name", layers.names())
def test_every_table_can_be_read(name):
    model = layers.read(name)
    assert model.name == name
    assert model.title
    assert model.linear()
    for layer in model.layers:
        assert layer.count > 0
        assert layer.p > 0
        assert layer.d % layer.kernel**2 == 0
        assert (layer.t is None) != layer.linear


def test_every_model_of_the_paper_has_a_table():
    printed_names = {cell.row.split(" ")[0] for cell in compared.all_cells()}
    assert printed_names < set(layers.names())


@pytest.mark.parametrize("name", TOTALS)
def test_all_parameters(name):
    assert layers.count_parameters(layers.read(name)).total == TOTALS[name]


@pytest.mark.parametrize("cell", compared.parameters(), ids=lambda c: f"{c.row}-{c.column}")
def test_parameters_are_those_of_the_paper(cell):
    assert cell.agrees != (cell.key in printed.known())


def test_tokens_and_images_can_be_changed():
    assert {x.t for x in layers.read("gpt2", tokens=7).linear()} == {7}
    assert [x.t for x in layers.read("roberta-base", tokens=7).linear()][-1] == 1
    assert layers.read("vit_base_patch16_224", image=512).linear()[0].t == 32 * 32
    assert layers.read("vit_base_patch16_224", image=512).linear()[1].t == 32 * 32 + 1
    assert layers.read("resnet18", image=512).linear()[-1].t == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "lenet"}, r"no model 'lenet'; models are beit_base.*"),
        ({"name": "gpt2", "image": 32}, "gpt2 has no image to change"),
        ({"name": "resnet18", "tokens": 32}, "resnet18 has no tokens to change"),
        ({"name": "resnet18", "image": 100}, "28 x 28 pixels do not scale from 224 to 100"),
    ],
)
def test_what_can_not_be_read_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        layers.read(**arguments)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{ name = "a", kind = "sense", p = 1 }', "'a' has the kind 'sense'.*kinds are dense"),
        ('{ name = "a", kind = "norm", q = 1, p = 1 }', r"unknown keys \['q'\]"),
        ('{ name = "a", kind = "dense", d = 1, p = 1 }', "'a' has no T and the model no tokens"),
    ],
)
def test_a_wrong_row_is_refused(tmp_path, monkeypatch, row, message):
    (tmp_path / "wrong.toml").write_text(f'title = "Wrong"\nlayers = [{row}]\n')
    monkeypatch.setattr(layers, "MODELS", tmp_path)
    with pytest.raises(ValueError, match=message):
        layers.read("wrong")
