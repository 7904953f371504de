import pytest
import torch
from torch import nn

from heldin.lab.models import fully_connected


def num_parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("input_size", "num_classes", "options", "expected"),
    [
        (784, 10, {}, 1_149_010),
        (3072, 100, {}, 2_338_100),
        (4, 2, {"depth": 1, "width": 3}, 4 * 3 + 3 + 3 * 2 + 2),
        (4, 2, {"depth": 2, "width": 3}, 4 * 3 + 3 + 3 * 3 + 3 + 3 * 2 + 2),
    ],
)
def test_parameters_are_as_many_as_counted_by_hand(input_size, num_classes, options, expected):
    assert num_parameters(fully_connected(input_size, num_classes, **options)) == expected


@pytest.mark.parametrize("shape", [(784,), (1, 28, 28), (16, 49)])
def test_samples_of_any_shape_are_flattened_into_logits(shape):
    assert fully_connected(784, 7, width=20)(torch.randn(3, *shape)).shape == (3, 7)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_depth_counts_hidden_layers_each_followed_by_a_relu(depth):
    layers = list(fully_connected(6, 2, depth=depth, width=5))
    hidden = layers[1:-1]
    assert [type(layer) for layer in hidden] == [nn.Linear, nn.ReLU] * depth
    assert isinstance(layers[-1], nn.Linear)


@pytest.mark.parametrize("name", ["input_size", "num_classes", "depth", "width"])
@pytest.mark.parametrize("value", [0, -1, 2.0, True, None])
def test_what_is_not_a_positive_integer_is_refused_by_name(name, value):
    arguments = {"input_size": 4, "num_classes": 2, "depth": 1, "width": 3, name: value}
    with pytest.raises(ValueError, match=rf"`{name}` should be an integer of at least 1\. Found `{name} = {value}`"):
        fully_connected(**arguments)
