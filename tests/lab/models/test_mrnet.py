"""The MRNet model: the maximum over the slices of an exam."""

import pytest
import torch

from heldin.errors import ArgumentError
from heldin.lab.models.mrnet import mrnet


def test_the_order_of_slices_does_not_matter_and_a_repeated_slice_adds_nothing():
    model = mrnet(2, scale=0.1).eval()
    exam = torch.randn(1, 3, 3, 64, 64)
    scores = model(exam)
    assert torch.allclose(model(exam.flip(1)), scores, atol=1e-6)
    assert torch.allclose(model(torch.cat([exam, exam[:, :1]], 1)), scores, atol=1e-6)


def test_the_features_are_those_of_alexnet():
    sizes = [parameter.numel() for parameter in mrnet().features.parameters()]
    assert sum(sizes) == 2_469_696  # the convolutions of the ImageNet AlexNet


def test_pretrained_features_come_from_a_file(tmp_path):
    source = mrnet(1000)
    torch.save(source.state_dict(), tmp_path / "alexnet.pt")
    model = mrnet(2, pretrained=tmp_path / "alexnet.pt")
    assert torch.equal(model.features[0].weight, source.features[0].weight)
    with pytest.raises(ArgumentError, match="AlexNet at scale 1"):
        mrnet(2, scale=0.5, pretrained=tmp_path / "alexnet.pt")
    torch.save({"fc.weight": torch.ones(1)}, tmp_path / "other.pt")
    with pytest.raises(ArgumentError, match="features"):
        mrnet(2, pretrained=tmp_path / "other.pt")
