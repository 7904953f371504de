"""How a spec writes the signals it measures."""

from heldin.lab.labels import parsed
from heldin.signals import GradientDisparity


def test_signals_on_fixed_batches_are_marked():
    assert parsed("gradient_disparity[rescale=none]@fixed") == (GradientDisparity(rescale="none"), True, None)
    assert parsed("gradient_disparity") == (GradientDisparity(), False, None)
    assert parsed("gradient_disparity@s=20") == (GradientDisparity(), False, 20)
    assert parsed("gradient_disparity@fixed@s=2") == (GradientDisparity(), True, 2)
