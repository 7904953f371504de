"""The paper's architectures, and smaller ones for small data, one file per family.

They need only torch, and keep torch's initial weights. `scale` is the paper's factor: it multiplies the channels or
hidden units of every layer. `heldin.lab.registry` builds them by name.
"""

from heldin.lab.models.alexnet import alexnet
from heldin.lab.models.cnn import cnn
from heldin.lab.models.fully_connected import fully_connected
from heldin.lab.models.lenet import lenet
from heldin.lab.models.mrnet import mrnet
from heldin.lab.models.resnet import resnet
from heldin.lab.models.vgg import vgg

__all__ = ["alexnet", "cnn", "fully_connected", "lenet", "mrnet", "resnet", "vgg"]
