"""The paper's architectures, one file a family.

They need torch alone and keep torch's own initialization: the paper's experiments choose theirs. `scale` is
the paper's factor, by which every layer's channels or hidden units are multiplied.
"""

from heldin.lab.models.alexnet import alexnet
from heldin.lab.models.fully_connected import fully_connected
from heldin.lab.models.resnet import resnet
from heldin.lab.models.vgg import vgg

__all__ = ["alexnet", "fully_connected", "resnet", "vgg"]
