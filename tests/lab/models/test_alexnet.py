import pytest
import torch
from torch import nn

from heldin.lab.models import alexnet


def num_parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("num_classes", "expected"), [(10, 20_125_386), (2, 20_125_386 - 8 * 4097)])
def test_parameters_are_as_many_as_in_the_paper(num_classes, expected):
    assert num_parameters(alexnet(num_classes)) == expected


@pytest.mark.parametrize("scale", [0.125, 1])
def test_digits_become_logits(scale):
    assert alexnet(7, scale=scale)(torch.randn(3, 1, 28, 28)).shape == (3, 7)


@pytest.mark.parametrize("scale", [0.125, 0.5, 2.0])
def test_scale_multiplies_channels_and_hidden_units_alike(scale):
    model = alexnet(scale=scale)
    channels = [layer.out_channels for layer in model if isinstance(layer, nn.Conv2d)]
    units = [layer.out_features for layer in model if isinstance(layer, nn.Linear)]
    assert channels == [scale * width for width in (64, 192, 384, 256, 256)]
    assert units == [scale * 4096, scale * 4096, 10]


def test_two_training_passes_differ_by_their_dropout_and_two_evaluations_do_not():
    model, images = alexnet(scale=0.125), torch.randn(4, 1, 28, 28)
    assert not torch.equal(model(images), model(images))
    model.eval()
    assert torch.equal(model(images), model(images))


@pytest.mark.parametrize("scale", [0, -1.0, 0.001, float("inf"), float("-inf"), float("nan")])
def test_a_scale_that_leaves_no_channel_is_refused(scale):
    with pytest.raises(ValueError, match=rf"Found `scale = {scale}` for a layer of 64"):
        alexnet(scale=scale)


def test_the_smallest_scale_the_refusal_names_is_accepted():
    assert alexnet(scale=1 / 64)(torch.randn(2, 1, 28, 28)).shape == (2, 10)


@pytest.mark.parametrize("num_classes", [0, -3, 1.5, True])
def test_a_number_of_classes_that_no_layer_can_have_is_refused(num_classes):
    with pytest.raises(ValueError, match="`num_classes` should be an integer of at least 1"):
        alexnet(num_classes)
