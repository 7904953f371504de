"""Random crops and flips."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import pad

from heldin.lab.data import augment


def crops_of(image, padding):
    """Every crop of the padded image, and its flip, computed one by one."""
    _, h, w = image.shape
    padded = pad(image, (padding,) * 4)
    for top in range(2 * padding + 1):
        for left in range(2 * padding + 1):
            crop = padded[:, top : top + h, left : left + w]
            yield crop
            yield crop.flip(2)


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 7), st.integers(1, 7), st.integers(0, 3), st.integers(0))
def test_every_image_becomes_one_of_its_crops(m, c, h, w, padding, seed):
    images = 1 + torch.arange(m * c * h * w).reshape(m, c, h, w).float()  # all different, none black
    original = images.clone()
    augmented = augment(images, seed, padding=padding)
    assert torch.equal(images, original)
    assert augmented.shape == images.shape
    for image, result in zip(images, augmented, strict=True):
        assert any(torch.equal(result, crop) for crop in crops_of(image, padding))


def test_all_crops_and_flips_are_equally_likely():
    image = 1 + torch.arange(9.0).reshape(1, 3, 3)
    kinds = list(crops_of(image, 1))
    augmented = augment(image.expand(18_000, -1, -1, -1), seed=2, padding=1)
    counts = torch.stack([(augmented == kind).flatten(1).all(1).sum() for kind in kinds])
    assert counts.sum() == 18_000
    assert counts.min() > 850
    assert counts.max() < 1150


def test_images_of_a_batch_are_cropped_independently():
    image = torch.rand(1, 3, 32, 32).expand(64, -1, -1, -1)
    assert len({each.numpy().tobytes() for each in augment(image, seed=0)}) > 40


def test_augmentation_is_a_function_of_its_seed_only():
    images = torch.rand(8, 3, 32, 32)
    before = torch.get_rng_state()
    assert torch.equal(augment(images, 1), augment(images, 1))
    assert not torch.equal(augment(images, 1), augment(images, 2))
    assert torch.equal(torch.get_rng_state(), before)
