"""RetinaMNIST: 1,600 photographs of the retina, with the grade of diabetic retinopathy."""

from heldin.lab.data.medmnist import medmnist

DATASET = medmnist(
    "retinamnist",
    "photographs of the retina, 28 x 28 in colour, 5 grades of disease",
    shape=(3, 28, 28),
    num_classes=5,
    num_train=1080 + 120,
    num_test=400,
    md5="bd4c0672f1bba3e3a89f0e4e876791e4",
)
