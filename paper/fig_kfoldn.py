"""Figure kfoldn: the curves of the noisy settings."""

from heldin.lab.reproducing import Item
from paper.fig_kfoldl import bars
from paper.kfold import drawn
from paper.making import together
from paper.settings import NOISY, seconds_of

ITEM = Item(
    label="fig:kfoldn",
    claim="With noisy labels the validation loss no longer follows the test loss, while gradient disparity does.",
    stage=1,
    specs=lambda profile: [spec for setting in NOISY for spec in setting.specs(profile)],
    build=lambda runs: together(drawn(runs, NOISY), bars(runs, NOISY)),
    differs="As tab:kfoldn.",
    found="On CIFAR-100 the validation loss does follow the test loss, noise or not, and disparity falls while the "
    "test loss rises, for the reason given with tab:var. The claim holds on noisy MNIST.",
    seconds=seconds_of,
)
