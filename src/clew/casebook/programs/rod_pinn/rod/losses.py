import torch


def slope(u, x):
    return torch.autograd.grad(u.sum(), x, create_graph=True)[0]


class RodLoss:
    def __init__(self, rod, readings, points, weights):
        self.rod, self.readings, self.points, self.weights = rod, readings, points, weights

    def equation(self, model):
        x, t = (values.requires_grad_() for values in self.rod.inside(self.points))
        u = model(x, t)
        residual = slope(u, t) - model.diffusivity * slope(slope(u, x), x)
        return residual.pow(2).mean()

    def edges(self, model):
        return model(*self.rod.edges(self.points // 2)).pow(2).mean()

    def start(self, model):
        x, t, profile = self.rod.start(self.points // 2)
        return (model(x, t) - profile).pow(2).mean()

    def measured(self, model):
        x, t, u = self.readings
        return (model(x, t) - u).pow(2).mean()

    def __call__(self, model):
        terms = {
            "equation": self.equation(model),
            "edges": self.edges(model),
            "start": self.start(model),
            "readings": self.measured(model),
        }
        return sum(self.weights[name] * term for name, term in terms.items()), terms
