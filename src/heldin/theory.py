"""The paper's theory of gradient disparity: the generalization penalty, Theorem 1 and its KL divergence.

From the weights w, a step on batch S1 leads to w1, and a step on S2 to w2. The generalization penalty
R2 = L_S2(w1) - L_S2(w2) is the increase of the loss of S2 if the step is taken on S1 instead; R1 is the same for S1.
`penalty` measures both, `bound` is Theorem 1, and `kl` is the divergence in it, between Q1 = N(w1, sigma^2 I) and
Q2 = N(w2, sigma^2 I). No signal and no rule uses this module.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from heldin.errors import ArgumentError, BatchesError, require_choice, require_integer, require_number
from heldin.gradients import Gradients
from heldin.probing.batches import is_pair, to_device
from heldin.probing.losses import LossFunction
from heldin.probing.probe import Mode, Probe

Optimizer = Literal["sgd", "momentum", "adagrad", "adadelta", "rmsprop", "adam"]
Form = Literal["exact", "bound", "printed"]


def bound(kl: float, *, m1: int, m2: int, delta: float = 0.05, reverse_kl: float | None = None) -> float:
    """The upper bound of Theorem 1 on E[R1] + E[R2] in 0-1 loss. It holds with probability at least 1 - `delta`.

    Formula (Theorem 1):
        sqrt((2 KL(Q2||Q1) + 2 ln(2 m2 / delta)) / (m2 - 2)) + sqrt((2 KL(Q1||Q2) + 2 ln(2 m1 / delta)) / (m1 - 2)).
    Misleads when:
        it is 2 or more, since no penalty exceeds 2; the weights were trained on the batches, which the theorem
        excludes; values with different `sigma` are compared.

    Args:
        kl: KL(Q1 || Q2).
        m1: the number of samples in S1, more than 2.
        m2: the number of samples in S2, more than 2.
        delta: the probability, over the sampling of both batches, that the bound fails.
        reverse_kl: KL(Q2 || Q1), if it differs from `kl`. For the result of `theory.kl` it does not.

    Examples:
        >>> from heldin import theory
        >>> round(theory.bound(0.0, m1=128, m2=128), 4)  # Q1 = Q2, so the penalty is 0
        0.7364
    """
    reverse = kl if reverse_kl is None else reverse_kl
    for name, divergence in (("kl", kl), ("reverse_kl", reverse)):
        require_number(name, divergence, at_least=0.0, remedy="A divergence is never negative.")
    for name, size in (("m1", m1), ("m2", m2)):
        require_integer(name, size, at_least=3, remedy="The theorem divides by m - 2: it needs more than 2 samples.")
    _require_positive("delta", delta, at_most=1.0)
    return sum(math.sqrt(2.0 * (part + math.log(2.0 * m / delta)) / (m - 2)) for part, m in ((reverse, m2), (kl, m1)))


def kl(
    g1: Tensor,
    g2: Tensor,
    *,
    learning_rate: float,
    sigma: float,
    optimizer: Optimizer = "sgd",
    form: Form = "exact",
    second_moment: Tensor | None = None,
    step: int | None = None,
    beta1: float = 0.9,
    eps: float = 1e-8,
) -> float:
    """KL(Q1 || Q2) = KL(Q2 || Q1) between the Gaussians around the weights after a step on S1 and on S2.

    Formula (equation 5 and appendix "Beyond SGD"), with gamma = `learning_rate`, v = `second_moment`, t = `step`:
        exact: gamma^2 / (2 sigma^2) * ||c * (g1 - g2)||^2; bound: gamma^2 / (2 sigma^2) * ||c||^2 * ||g1 - g2||^2;
        SGD, with or without momentum (the velocity cancels): c = 1, and every `form` is the exact one;
        Adagrad, Adadelta, RMSprop: c = 1 / sqrt(v + eps), element-wise;
        Adam: c = a / (sqrt(v) + eps), with a = (1 - beta1) / (1 - beta1^t).
    Misleads when:
        v differs much between the two steps, as in the first iterations or with a short memory; the paper and "exact"
        assume that it is the same. If c has d equal entries, the bound is d times the exact form.

    Args:
        g1: the gradient of S1, (d,): `g1, g2 = probe.gradients([first, second], "none").matrix()`.
        g2: the gradient of S2, (d,).
        learning_rate: gamma; for Nesterov's momentum, gamma * (1 + momentum).
        sigma: the standard deviation of the random perturbation of the weights. The paper gives no value.
        optimizer: the optimizer of both steps.
        form: `"exact"`, `"bound"`, or `"printed"`: the bound as printed in the paper, with its errors.
        second_moment: (d,), after the step. Adagrad: the sum of squared gradients; Adadelta, RMSprop: their decaying
            mean; Adam: that mean with bias correction, torch's `exp_avg_sq / (1 - beta2**step)`.
        step: the number of the update, starting at 1. For Adam only.
        beta1: for Adam only.
        eps: inside the root, as in the paper (torch's Adagrad and RMSprop add it outside). For Adam, outside.

    Examples:
        >>> import torch
        >>> from heldin import theory
        >>> g1, g2 = torch.tensor([3.0, 4.0]), torch.tensor([0.0, 0.0])
        >>> theory.kl(g1, g2, learning_rate=0.5, sigma=0.25)
        50.0
        >>> adagrad = {"optimizer": "adagrad", "second_moment": torch.tensor([4.0, 16.0]), "eps": 0.0}
        >>> forms = ("exact", "bound", "printed")
        >>> [theory.kl(g1, g2, learning_rate=1.0, sigma=1.0, form=form, **adagrad) for form in forms]
        [1.625, 3.90625, 0.830078125]
    """
    _require_positive("learning_rate", learning_rate)
    _require_positive("sigma", sigma)
    require_choice("optimizer", optimizer, get_args(Optimizer))
    require_choice("form", form, get_args(Form))
    _require_only_if(optimizer not in ("sgd", "momentum"), "second_moment", second_moment, optimizer)
    _require_only_if(optimizer == "adam", "step", step, optimizer)
    difference = _vector("g1", g1, g1) - _vector("g2", g2, g1)
    norm_sq = difference.square().sum()
    if second_moment is not None:
        c = _multiplier(_vector("second_moment", second_moment, g1), form, step, beta1, eps)
        norm_sq = (c * difference).square().sum() if form == "exact" else c.square().sum() * norm_sq
    return 0.5 * (learning_rate / sigma) ** 2 * float(norm_sq)


def _multiplier(v: Tensor, form: Form, step: int | None, beta1: float, eps: float) -> Tensor:
    """The factor c of `kl`, by which a step with learning rate 1 multiplies the gradient, element-wise."""
    require_number("eps", eps, at_least=0.0, remedy="1e-8 is usual.")
    if bool((v + eps <= 0.0).any()) or bool((v < 0.0).any()):
        raise ArgumentError(
            f"Parameter `second_moment` should be positive, or 0 with an `eps` above 0. Found `eps = {eps!r}` and "
            f"a smallest entry of {float(v.min()):g}. Pass the optimizer's mean or sum of squares, and eps=1e-8."
        )
    if step is None:
        # PAPER: Adagrad and Adadelta divide by sqrt(v + eps), but the paper prints ||1 / (v + eps)||^2, without the
        # root. If v + eps > 1, the printed bound can be below the divergence. Its Adadelta is in fact RMSprop.
        return 1.0 / (v + eps if form == "printed" else (v + eps).sqrt())
    require_integer("step", step, at_least=1, remedy="The first update has number 1.")
    require_number("beta1", beta1, at_least=0.0, below=1.0, remedy="0.9 is usual.")
    a = (1.0 - beta1) / (1.0 - beta1**step)
    # PAPER: Adam's bound is printed with a instead of a^2. Since a <= 1 it still holds, but is 1/a times too large.
    return (math.sqrt(a) if form == "printed" else a) / (v.sqrt() + eps)


@dataclass(frozen=True)
class Penalty:
    """The generalization penalties (R1, R2) of two batches, in three versions. The theorem is about their sum.

    Attributes:
        surrogate: in the training loss.
        zero_one: in the 0-1 loss, the fraction of samples for which a wrong class has a higher output than the right
            one. None if the targets are not classes.
        first_order: gamma * <g1, g1 - g2> and gamma * <g2, g2 - g1>, with the sum gamma * ||g1 - g2||^2. For a loss
            that is linear in the weights it equals `surrogate`.
    """

    surrogate: tuple[float, float]
    zero_one: tuple[float, float] | None
    first_order: tuple[float, float]


def penalty(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Sequence[object],
    *,
    learning_rate: float,
    mode: Mode = "train",
    seed: int = 0,
) -> Penalty:
    """Measure the generalization penalties: take an SGD step on either batch, and compare the losses of both.

    Formula (section 3 of the paper):
        w_i = w - gamma * g_i; R1 = L_S1(w2) - L_S1(w1); R2 = L_S2(w1) - L_S2(w2).
    Cost:
        6 forward and 2 backward passes; memory 4 * d. The steps are taken on copies of the weights.
    Misleads when:
        it is compared with the bound of the theorem, which is about the mean over Gaussian perturbations of w1 and w2.

    Args:
        model: any module with trainable parameters.
        loss_fn: the training loss, as for `Probe`.
        batches: S1 and S2, two pairs (inputs, targets): `heldin.probing.draw(loader, 2, seed=0)`.
        learning_rate: gamma.
        mode: `"train"` or `"eval"`, as for `Probe`.
        seed: the seed of dropout. All passes over a batch drop the same units.

    Examples:
        >>> import torch
        >>> from heldin import theory
        >>> model = torch.nn.Linear(1, 2, bias=False)
        >>> _ = torch.nn.init.zeros_(model.weight)
        >>> batches = [(torch.ones(1, 1), torch.tensor([label])) for label in (0, 1)]  # one sample, two labels
        >>> found = theory.penalty(model, torch.nn.CrossEntropyLoss(), batches, learning_rate=0.5)
        >>> sum(found.zero_one), sum(found.first_order), round(sum(found.surrogate), 6)
        (2.0, 1.0, 1.0)
    """
    probe = Probe(model, loss_fn, mode=mode, seed=seed)
    _require_positive("learning_rate", learning_rate)
    first, second = _two_pairs(batches)
    one, other = (probe.gradients([batch], "none") for batch in (first, second))
    w1, w2 = (_step(probe, gradients.rows[0], learning_rate) for gradients in (one, other))
    r1 = _losses(probe, w2, first) - _losses(probe, w1, first)  # (2,): surrogate, 0-1
    r2 = _losses(probe, w1, second) - _losses(probe, w2, second)
    both = Gradients((*one.rows, *other.rows), (1.0, 1.0), one.sizes, split=2).gram(inner=True)
    linear = learning_rate * (both.inner(0, 0) - both.inner(0, 1))
    return Penalty(
        surrogate=(float(r1[0]), float(r2[0])),
        zero_one=None if bool((r1 + r2).isnan().any()) else (float(r1[1]), float(r2[1])),
        first_order=(linear, learning_rate * both.distance_sq(0, 1) - linear),
    )


@torch.inference_mode(False)
def _step(probe: Probe, gradient: Sequence[Tensor | None], learning_rate: float) -> dict[str, Tensor]:
    """Return new tensors w - gamma * g, by name, for the parameters that have a gradient."""
    names = {parameter: name for name, parameter in probe.model.named_parameters()}
    stepped = {}
    for parameter, part in zip(probe.parameters(), gradient, strict=True):
        if part is not None:
            g = torch.view_as_complex(part.contiguous()) if parameter.is_complex() else part
            stepped[names[parameter]] = (parameter.detach() - learning_rate * g).requires_grad_()
    return stepped


def _losses(probe: Probe, weights: dict[str, Tensor], batch: object) -> Tensor:
    """Return the mean training loss and the mean 0-1 loss (NaN if there is none) of a batch at other weights."""
    outputs: list[object] = []

    def model(inputs: object) -> object:
        outputs.append(torch.func.functional_call(probe.model, weights, (inputs,)))
        return outputs[-1]

    with probe.session() as devices:
        pair = to_device(batch, devices)
        losses = probe.loss.per_sample()(model, pair)  # type: ignore[arg-type]
        return torch.stack([losses.detach().cpu().double().mean(), _zero_one(outputs[-1], pair[1])])


def _zero_one(output: object, target: object) -> Tensor:
    """Return the mean of 1[output of the right class < highest output]: a tie is not an error, as in the paper."""
    if isinstance(output, Tensor) and isinstance(target, Tensor) and not target.is_floating_point():
        one_per_sample = output.ndim == 2 and target.shape == output.shape[:1]
        if one_per_sample and bool(((target >= 0) & (target < output.shape[1])).all()):
            wrong = output.gather(1, target.long()[:, None]).squeeze(1) < output.amax(1)
            return wrong.cpu().double().mean()
    return torch.tensor(math.nan, dtype=torch.float64, device="cpu")


def _two_pairs(batches: object) -> Sequence[object]:
    if isinstance(batches, (list, tuple)) and len(batches) == 2 and all(map(is_pair, batches)):
        return batches
    found = type(batches).__name__ + (f" of {len(batches)}" if isinstance(batches, Sequence) else "")
    raise BatchesError(
        "Parameter `batches` should be a list of two pairs, [(inputs, targets), (inputs, targets)]. "
        f"Found another {found}. From a loader: heldin.probing.draw(loader, 2, seed=0)."
    )


def _require_positive(name: str, value: float, *, at_most: float = math.inf) -> None:
    require_number(name, value, remedy="It should be above 0.")
    if not 0.0 < value <= at_most:
        limit = f" and at most {at_most:g}" if at_most < math.inf else ""
        raise ArgumentError(f"Parameter `{name}` should be above 0{limit}. Found `{name} = {value!r}`.")


def _require_only_if(needed: bool, name: str, value: object, optimizer: str) -> None:
    if (value is not None) != needed:
        should, found = ("be given", "None") if needed else ("be left out", "a value")
        raise ArgumentError(f"Parameter `{name}` should {should} for `optimizer = {optimizer!r}`. Found {found}.")


def _vector(name: str, value: object, like: Tensor) -> Tensor:
    """Return `value` in double precision on the CPU. It should be a finite tensor with the shape of `like`."""
    if not isinstance(value, Tensor):
        remedy = 'Write g1, g2 = probe.gradients([first, second], "none").matrix().'
        raise ArgumentError(f"Parameter `{name}` should be a tensor. Found {type(value).__name__}. {remedy}")
    if value.shape != like.shape:
        shapes = f"the shape of `g1`, {tuple(like.shape)}. Found shape {tuple(value.shape)}."
        raise ArgumentError(f"Parameter `{name}` should have {shapes} Flatten both in the order of the parameters.")
    if num_bad := int((~value.isfinite()).sum()):
        raise ArgumentError(
            f"Parameter `{name}` should be finite. Found {num_bad} non-finite values. Check whether training diverged."
        )
    return value.detach().cpu().double()
