import pytest
import torch
from torch import nn

from heldin.lab.models import vgg


def num_parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("depth", "num_classes", "expected"),
    [
        (11, 10, 9_231_114),
        (13, 10, 9_416_010),
        (16, 10, 14_728_266),
        (19, 10, 20_040_522),
        (13, 100, 9_416_010 + 90 * 513),
    ],
)
def test_parameters_are_as_many_as_in_the_paper(depth, num_classes, expected):
    assert num_parameters(vgg(depth, num_classes)) == expected


@pytest.mark.parametrize("depth", [11, 13, 16, 19])
@pytest.mark.parametrize("scale", [0.125, 0.25])
def test_images_become_logits(depth, scale):
    assert vgg(depth, 7, scale=scale)(torch.randn(3, 3, 32, 32)).shape == (3, 7)


@pytest.mark.parametrize("depth", [11, 13, 16, 19])
def test_depth_counts_the_three_linear_layers_of_the_original(depth):
    convolutions = [layer for layer in vgg(depth, scale=0.125) if isinstance(layer, nn.Conv2d)]
    assert len(convolutions) == depth - 3


@pytest.mark.parametrize("scale", [0.125, 0.5, 2.0])
def test_scale_multiplies_the_channels_of_every_layer(scale):
    model = vgg(11, scale=scale)
    channels = [layer.out_channels for layer in model if isinstance(layer, nn.Conv2d)]
    assert channels == [scale * width for width in (64, 128, 256, 256, 512, 512, 512, 512)]
    assert [layer.num_features for layer in model if isinstance(layer, nn.BatchNorm2d)] == channels
    assert model[-1].in_features == scale * 512


@pytest.mark.parametrize("depth", [0, 12, -11, "11", None])
def test_a_depth_without_a_vgg_is_refused(depth):
    with pytest.raises(ValueError, match=rf"should be 11, 13, 16 or 19\. Found `depth = {depth!r}`"):
        vgg(depth)


@pytest.mark.parametrize("scale", [0, -1.0, 0.001, float("inf"), float("nan")])
def test_a_scale_that_leaves_no_channel_is_refused(scale):
    with pytest.raises(ValueError, match=rf"Found `scale = {scale}` for a layer of 64"):
        vgg(11, scale=scale)


@pytest.mark.parametrize("num_classes", [0, -3, 1.5, True])
def test_a_number_of_classes_that_no_layer_can_have_is_refused(num_classes):
    with pytest.raises(ValueError, match="`num_classes` should be an integer of at least 1"):
        vgg(11, num_classes)
