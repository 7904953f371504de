"""BreastMNIST: 780 ultrasound images of the breast."""

from heldin.lab.data.medmnist import medmnist

DATASET = medmnist(
    "breastmnist",
    "breast ultrasound, 28 x 28 gray, malignant (0) or not (1)",
    shape=(1, 28, 28),
    num_classes=2,
    num_train=546 + 78,
    num_test=156,
    md5="750601b1f35ba3300ea97c75c52ff8f6",
)
