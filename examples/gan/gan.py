"""A GAN whose generator learns to draw points of a circle; two optimizers take turns.

Run it from this folder:

    distrain run gan.toml
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

from distrain.models.task import Task

NOISE = 8
HELD_OUT = 512


class Circle(Task):
    best = "radius_error"

    def __init__(self, seed, samples=4096, width=64):
        self.model = Pair(width)
        angles = torch.rand(samples, generator=torch.Generator().manual_seed(seed)) * 2 * torch.pi
        points = torch.stack([angles.cos(), angles.sin()], dim=1)
        self.train = TensorDataset(points[HELD_OUT:])
        self.eval = TensorDataset(points[:HELD_OUT])

    def optimizer(self, model):
        """Return the optimizers by name: each step is one of the next."""
        betas = (0.5, 0.9)
        return {
            "discriminator": torch.optim.Adam(model.discriminator.parameters(), 2e-3, betas),
            "generator": torch.optim.Adam(model.generator.parameters(), 1e-3, betas),
        }

    def loss(self, model, batch):
        (real,) = batch
        if self.turn == "generator":
            return F.softplus(-model(real, self.turn)).mean()
        on_real, on_fake = model(real, self.turn)
        return (F.softplus(-on_real) + F.softplus(on_fake)).mean()

    def metrics(self, model, batch):
        """Return how far from the circle the points are, of which `model` draws as many."""
        (real,) = batch
        errors = (model.draw(real).norm(dim=1) - 1).abs()
        return {"radius_error": (errors.double().sum(), len(real))}


class Pair(nn.Module):
    """Both networks in one module, whose forward does what a turn needs.

    DDP then synchronises both; `ddp.find_unused_parameters` allows for the one without gradients.
    """

    def __init__(self, width):
        super().__init__()
        self.generator = layers(NOISE, width, 2)
        self.discriminator = layers(2, width, 1)

    def forward(self, real, turn):
        fake = self.draw(real)
        if turn == "generator":
            return self.discriminator(fake)
        return self.discriminator(real), self.discriminator(fake.detach())

    def draw(self, like):
        """Return as many points as `like` has, of its type and on its device."""
        return self.generator(torch.randn(len(like), NOISE).to(like))


def layers(inputs, width, outputs):
    return nn.Sequential(
        nn.Linear(inputs, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, outputs),
    )
