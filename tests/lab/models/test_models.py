"""The architectures: sizes as in the paper, shapes, scale, and refused arguments."""

from functools import partial

import pytest
import torch
from torch import nn

from heldin.errors import ArgumentError
from heldin.lab.models import alexnet, cnn, fully_connected, lenet, mrnet, resnet, vgg
from heldin.lab.models.resnet import BasicBlock

IMAGES = {"alexnet": (1, 28, 28), "vgg": (3, 32, 32), "resnet": (3, 32, 32)}
SCALED = {  # builders of the families that are scaled
    "alexnet": alexnet,
    **{f"vgg{depth}": partial(vgg, depth) for depth in (8, 11, 13, 16, 19)},
    **{f"resnet{depth}": partial(resnet, depth) for depth in (8, 14, 18, 20, 34)},
}


def num_parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


def widths_of(model, kind=nn.Conv2d):
    return [layer.out_channels for layer in model if isinstance(layer, kind)]


@pytest.mark.parametrize(
    ("name", "num_classes", "expected"),
    [
        ("alexnet", 10, 20_125_386),
        ("alexnet", 2, 20_125_386 - 8 * 4097),
        ("vgg11", 10, 9_231_114),
        ("vgg13", 10, 9_416_010),
        ("vgg16", 10, 14_728_266),
        ("vgg19", 10, 20_040_522),
        ("vgg13", 100, 9_416_010 + 90 * 513),
        ("resnet18", 10, 11_173_962),
        ("resnet34", 10, 21_282_122),
        ("resnet34", 100, 21_282_122 + 90 * 513),
    ],
)
def test_the_number_of_parameters_is_that_of_the_paper(name, num_classes, expected):
    with torch.device("meta"):  # no memory, no initial weights
        assert num_parameters(SCALED[name](num_classes)) == expected


@pytest.mark.parametrize("name", SCALED)
def test_images_become_logits(name):
    shape = IMAGES[name.rstrip("0123456789")]
    assert SCALED[name](7, scale=1 / 16)(torch.randn(3, *shape)).shape == (3, 7)


@pytest.mark.parametrize("name", ["alexnet", "vgg11", "resnet18"])  # one of each family
@pytest.mark.parametrize("scale", [0, -1.0, 0.001, float("inf"), float("nan")])
def test_a_scale_that_leaves_no_channel_is_refused(name, scale):
    with pytest.raises(ArgumentError, match=rf"Found `scale = {scale}` for a layer of (64|16)"):
        SCALED[name](scale=scale)


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("num_classes", [0, 1.5])
def test_an_impossible_number_of_classes_is_refused(name, num_classes):
    with pytest.raises(ArgumentError, match="`num_classes` should be an integer of at least 1"):
        SCALED[name](num_classes)


@pytest.mark.parametrize(
    ("build", "message"),
    [(vgg, "should be 8, 11, 13, 16 or 19"), (resnet, "should be 8, 14, 18, 20 or 34")],
    ids=["vgg", "resnet"],
)
@pytest.mark.parametrize("depth", [0, 12, -11, "18", None])
def test_an_unknown_depth_is_refused(build, message, depth):
    with pytest.raises(ArgumentError, match=rf"{message}\. Found `depth = {depth!r}`"):
        build(depth)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        # 5 x 5 convolutions of 6 and 16 channels; linear layers of 120 and 84 units over 16 images of 5 x 5 pixels
        (lenet(), 6 * 26 + 16 * 151 + 120 * 401 + 84 * 121 + 10 * 85),
        (lenet((3, 32, 32), 100), 6 * 76 + 16 * 151 + 120 * 577 + 84 * 121 + 100 * 85),
        # per block two 3 x 3 convolutions, without bias but with BatchNorm; a 1 x 1 convolution where the width changes
        (resnet(8), 3 * 144 + 32 + 4672 + (13952 + 576) + (55552 + 2176) + 650),
        (resnet(20), 3 * 144 + 32 + 3 * 4672 + (13952 + 576) + 2 * 18560 + (55552 + 2176) + 2 * 73984 + 650),
        (vgg(8, scale=0.25), 16 * 30 + 32 * 147 + 64 * 291 + 128 * 579 + 128 * 1155 + 10 * 129),
    ],
    ids=["lenet", "lenet on color images", "resnet8", "resnet20", "vgg8"],
)
def test_the_number_of_parameters_of_small_networks(model, expected):
    assert num_parameters(model) == expected


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 33, 28), (1, 4, 5)])
@pytest.mark.parametrize("options", [{}, {"batch_norm": True}, {"dropout": 0.5, "scale": 0.5}])
def test_a_small_cnn_takes_images_of_any_size(shape, options):
    model = cnn(shape, 7, **options)
    assert model(torch.randn(3, *shape)).shape == (3, 7)
    kinds = [type(layer) for layer in model]
    assert kinds.count(nn.BatchNorm2d) == (2 if "batch_norm" in options else 0)
    assert kinds.count(nn.Dropout) == (1 if "dropout" in options else 0)


def test_a_small_cnn_refuses_images_that_are_too_small():
    with pytest.raises(ArgumentError, match="at least 4 x 4 pixels"):
        cnn((1, 3, 8))


def test_hidden_layers_with_batch_norm_and_dropout():
    kinds = [type(layer) for layer in fully_connected(6, 3, depth=1, width=5, batch_norm=True, dropout=0.5)]
    assert kinds == [nn.Flatten, nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Dropout, nn.Linear]


def test_lenet_refuses_images_that_are_too_small():
    with pytest.raises(ArgumentError, match="at least 12 x 12 pixels. Found 8 x 12"):
        lenet((1, 8, 12))
    assert lenet((1, 12, 15))(torch.randn(2, 1, 12, 15)).shape == (2, 10)


@pytest.mark.parametrize("scale", [0.125, 0.5, 2.0])
def test_scale_multiplies_channels_and_hidden_units(scale):
    model = alexnet(scale=scale)
    assert widths_of(model) == [scale * width for width in (64, 192, 384, 256, 256)]
    units = [layer.out_features for layer in model if isinstance(layer, nn.Linear)]
    assert units == [scale * 4096, scale * 4096, 10]

    model = vgg(11, scale=scale)
    assert widths_of(model) == [scale * width for width in (64, 128, 256, 256, 512, 512, 512, 512)]
    assert model[-1].in_features == scale * 512

    model = resnet(18, scale=scale)
    widths = [block.residual[0].out_channels for block in model if isinstance(block, BasicBlock)]
    assert model[0].out_channels == scale * 64
    assert widths == [scale * width for width in (64, 64, 128, 128, 256, 256, 512, 512)]


@pytest.mark.parametrize("depth", [11, 13, 16, 19])
def test_the_depth_of_a_vgg_counts_three_linear_layers(depth):
    assert len(widths_of(vgg(depth, scale=0.125))) == depth - 3


@pytest.mark.parametrize("depth", [18, 34])
def test_the_depth_of_a_resnet_counts_the_first_layer_two_per_block_and_the_last(depth):
    blocks = [layer for layer in resnet(depth, scale=0.125) if isinstance(layer, BasicBlock)]
    assert 1 + 2 * len(blocks) + 1 == depth


@pytest.mark.parametrize(("in_channels", "stride"), [(4, 1), (4, 2), (2, 1), (2, 2)])
def test_a_block_whose_residual_is_zero_returns_its_shortcut(in_channels, stride):
    block, x = BasicBlock(in_channels, 4, stride=stride), torch.randn(3, in_channels, 8, 8)
    nn.init.zeros_(block.residual[-1].weight)
    assert torch.equal(block(x), torch.relu(block.shortcut(x)))
    assert block(x).shape == (3, 4, 8 // stride, 8 // stride)
    if (in_channels, stride) == (4, 1):
        assert torch.equal(block.shortcut(x), x)


def test_alexnet_has_dropout_in_training_mode():
    model, images = alexnet(scale=0.125), torch.randn(4, 1, 28, 28)
    assert not torch.equal(model(images), model(images))
    model.eval()
    assert torch.equal(model(images), model(images))


@pytest.mark.parametrize(
    ("input_size", "num_classes", "options", "expected"),
    [
        (784, 10, {}, 1_149_010),
        (3072, 100, {}, 2_338_100),
        (4, 2, {"depth": 1, "width": 3}, 4 * 3 + 3 + 3 * 2 + 2),
        (4, 2, {"depth": 2, "width": 3}, 4 * 3 + 3 + 3 * 3 + 3 + 3 * 2 + 2),
    ],
)
def test_the_number_of_parameters_of_a_fully_connected_network(input_size, num_classes, options, expected):
    assert num_parameters(fully_connected(input_size, num_classes, **options)) == expected


@pytest.mark.parametrize("shape", [(784,), (1, 28, 28), (16, 49)])
def test_a_fully_connected_network_flattens_its_samples(shape):
    assert fully_connected(784, 7, width=20)(torch.randn(3, *shape)).shape == (3, 7)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_each_hidden_layer_is_followed_by_a_relu(depth):
    layers = list(fully_connected(6, 2, depth=depth, width=5))
    assert [type(layer) for layer in layers[1:-1]] == [nn.Linear, nn.ReLU] * depth
    assert isinstance(layers[-1], nn.Linear)


@pytest.mark.parametrize("name", ["input_size", "num_classes", "depth", "width"])
@pytest.mark.parametrize("value", [0, -1, 2.0, True, None])
def test_a_fully_connected_network_needs_positive_integers(name, value):
    arguments = {"input_size": 4, "num_classes": 2, "depth": 1, "width": 3, name: value}
    with pytest.raises(ArgumentError, match=rf"`{name}` should be an integer of at least 1\. Found `{name} = {value}`"):
        fully_connected(**arguments)


def test_mrnet_ignores_the_order_of_slices_and_repeated_ones():
    model = mrnet(2, scale=0.1).eval()
    exam = torch.randn(1, 3, 3, 64, 64)
    scores = model(exam)
    assert torch.allclose(model(exam.flip(1)), scores, atol=1e-6)
    assert torch.allclose(model(torch.cat([exam, exam[:, :1]], 1)), scores, atol=1e-6)


def test_mrnet_has_the_features_of_alexnet():
    assert num_parameters(mrnet().features) == 2_469_696  # the convolutions of the ImageNet AlexNet


def test_mrnet_loads_pretrained_features_from_a_file(tmp_path):
    source = mrnet(1000)
    torch.save(source.state_dict(), tmp_path / "alexnet.pt")
    model = mrnet(2, pretrained=tmp_path / "alexnet.pt")
    assert torch.equal(model.features[0].weight, source.features[0].weight)
    with pytest.raises(ArgumentError, match="AlexNet at scale 1"):
        mrnet(2, scale=0.5, pretrained=tmp_path / "alexnet.pt")
    torch.save({"fc.weight": torch.ones(1)}, tmp_path / "other.pt")
    with pytest.raises(ArgumentError, match="features"):
        mrnet(2, pretrained=tmp_path / "other.pt")
