import pytest
import torch
from torch import nn

from heldin.lab.models import resnet
from heldin.lab.models.resnet import BasicBlock


def num_parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("depth", "num_classes", "expected"),
    [(18, 10, 11_173_962), (34, 10, 21_282_122), (34, 100, 21_282_122 + 90 * 513)],
)
def test_parameters_are_as_many_as_in_the_paper(depth, num_classes, expected):
    assert num_parameters(resnet(depth, num_classes)) == expected


@pytest.mark.parametrize("depth", [18, 34])
@pytest.mark.parametrize("scale", [0.125, 0.25])
def test_images_become_logits(depth, scale):
    assert resnet(depth, 7, scale=scale)(torch.randn(3, 3, 32, 32)).shape == (3, 7)


@pytest.mark.parametrize("depth", [18, 34])
def test_depth_counts_the_stem_two_convolutions_a_block_and_the_linear_layer(depth):
    blocks = [layer for layer in resnet(depth, scale=0.125) if isinstance(layer, BasicBlock)]
    assert 1 + 2 * len(blocks) + 1 == depth


@pytest.mark.parametrize("scale", [0.125, 0.5, 2.0])
def test_scale_multiplies_the_channels_of_every_layer(scale):
    model = resnet(18, scale=scale)
    widths = [block.residual[0].out_channels for block in model if isinstance(block, BasicBlock)]
    assert model[0].out_channels == scale * 64
    assert widths == [scale * width for width in (64, 64, 128, 128, 256, 256, 512, 512)]
    assert model[-1].in_features == scale * 512


@pytest.mark.parametrize(("in_channels", "stride"), [(4, 1), (4, 2), (2, 1), (2, 2)])
def test_a_block_whose_residual_is_zero_passes_its_shortcut_on(in_channels, stride):
    block, x = BasicBlock(in_channels, 4, stride=stride), torch.randn(3, in_channels, 8, 8)
    nn.init.zeros_(block.residual[-1].weight)
    assert torch.equal(block(x), torch.relu(block.shortcut(x)))
    assert block(x).shape == (3, 4, 8 // stride, 8 // stride)


def test_the_shortcut_is_the_identity_exactly_when_the_shape_stays():
    x = torch.randn(3, 4, 8, 8)
    assert torch.equal(BasicBlock(4, 4).shortcut(x), x)
    assert BasicBlock(4, 4, stride=2).shortcut(x).shape == (3, 4, 4, 4)
    assert BasicBlock(4, 6).shortcut(x).shape == (3, 6, 8, 8)


@pytest.mark.parametrize("depth", [0, 50, -18, "18", None])
def test_a_depth_without_a_resnet_is_refused(depth):
    with pytest.raises(ValueError, match=rf"should be 18 or 34\. Found `depth = {depth!r}`"):
        resnet(depth)


@pytest.mark.parametrize("scale", [0, -1.0, 0.001, float("inf"), float("nan")])
def test_a_scale_that_leaves_no_channel_is_refused(scale):
    with pytest.raises(ValueError, match=rf"Found `scale = {scale}` for a layer of 64"):
        resnet(18, scale=scale)


@pytest.mark.parametrize("num_classes", [0, -3, 1.5, True])
def test_a_number_of_classes_that_no_layer_can_have_is_refused(num_classes):
    with pytest.raises(ValueError, match="`num_classes` should be an integer of at least 1"):
        resnet(18, num_classes)
